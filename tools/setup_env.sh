#!/usr/bin/env bash
# Usage: bash tools/setup_env.sh [--tests]
# Makes a virtual environment with everything locked in requirements/, and mmposenc in it; --tests
# adds what tests, checks and docs need. tools/lock.sh writes the lock files.
#   MMPOSENC_VENV       where (default: .venv at the root of the repository)
#   MMPOSENC_SET        onedl (default) or openmmlab: whose mmengine, mmcv, mmdet, mmseg, mmpretrain
#   MMPOSENC_PYTHON     the Python to make it with (default: the first of 3.10 - 3.13 on the PATH)
#   MMPOSENC_INSTALLER  uv or pip (default: the uv on the PATH, else one that pip puts into the
#                       environment, else pip)
# A second run with the same locks does nothing and needs no network. Two at once are one: the second
# waits; after a failed run, the next one repairs. An environment that this script did not make is
# used when it has pip, and never deleted.
# pip's configuration and PIP_* hold for uv too: which build of torch it is follows from the index
# (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS). UV_* go before them. What uv does not have,
# such as no-index, needs MMPOSENC_INSTALLER=pip.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${MMPOSENC_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
cd "$root"
packages=${MMPOSENC_SET:-onedl} choice=${MMPOSENC_INSTALLER:-uv}
python=$venv/bin/python log=$venv/setup.log
stamp=$venv/mmposenc.stamp          # what the finished environment was made from
held=$venv/mmposenc.set             # its packages, which share folders with the other set's
with_tests=$venv/mmposenc.tests     # once there, test tools are kept in step with the rest
made=$venv/mmposenc.made            # this script made it, and may make it anew
in_range='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
# What pip and uv say when they can't reach an index; "No matching distribution" is pip's last line.
offline='NewConnection|NameResolution|ConnectTimeout|ProxyError|Connection refused|Max retries'
offline="$offline|is unreachable|name resolution|\\(Connect\\)|dns error|connectivity is disabled"

say() { printf 'setup_env: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

find_python() {
    local name names=(python3 python python3.12 python3.11 python3.13 python3.10)
    [ -z "${MMPOSENC_PYTHON:-}" ] || names=("$MMPOSENC_PYTHON")
    for name in "${names[@]}"; do
        if "$name" -c "$in_range" >/dev/null 2>&1; then echo "$name"; return; fi
    done
    fail "needs Python 3.10 to 3.13, and $names is $("$names" --version 2>&1 | head -n 1); name one \
by MMPOSENC_PYTHON"
}

# What the environment depends on: the place, what is asked for, the Python, and what is read.
fingerprint() {
    { echo "$root $packages $tests"
      "$python" --version
      cat requirements/*.txt tools/setup_env.sh setup.py pyproject.toml; } 2>/dev/null | cksum
}

end_if_up_to_date() {
    [ ! -e "$with_tests" ] || tests=yes
    [ -x "$python" ] && [ -f "$stamp" ] && [ "$(fingerprint)" = "$(cat "$stamp")" ] || return 0
    say "$venv is up to date"
    exit
}

# step WHAT COMMAND...: says what it does and how long it took; one line when it fails.
step() {
    local what=$1 start=$SECONDS
    shift
    say "$what ..."
    if ! "$@" >"$log" 2>&1; then
        local reason
        reason=$(grep -iE '^(ERROR|[A-Za-z]*Error)' "$log" || tail -n 1 "$log")
        ! grep -qiE "$offline" "$log" || reason='no connection to the package index'
        fail "$what failed: ${reason##*$'\n'} (all of it: $log; run this again to repair)"
    fi
    say "  done in $((SECONDS - start)) s"
}

# What uv, which reads nothing of pip's, needs for the same result, as lines of export; what is set
# for uv itself stays.
settings_for_uv() {
    "$python" - <<'PY'
import ast, os, shlex, subprocess, sys
sections = {'global': {}, 'install': {}, ':env:': {}}  # each goes before those to its left
for line in subprocess.check_output(
        [sys.executable, '-m', 'pip', 'config', 'list'], text=True).splitlines():
    name, _, value = line.partition('=')
    section, _, key = name.rpartition('.')
    sections.get(section, {})[key.replace('_', '-')] = ast.literal_eval(value)
pip = {key: value for section in sections.values() for key, value in section.items() if value}
pip.setdefault('timeout', pip.get('default-timeout', ''))
found = {'UV_INDEX_STRATEGY': 'unsafe-best-match'}  # pip's: no index goes before another
for variable, between, key in (
        ('UV_DEFAULT_INDEX', ' ', 'index-url'), ('UV_INDEX', ' ', 'extra-index-url'),
        ('UV_FIND_LINKS', ',', 'find-links'), ('UV_CONSTRAINT', ' ', 'constraint'),
        ('UV_INSECURE_HOST', ' ', 'trusted-host'), ('SSL_CERT_FILE', ' ', 'cert'),
        ('ALL_PROXY', ' ', 'proxy'), ('UV_HTTP_TIMEOUT', ' ', 'timeout')):
    if pip.get(key) and not (variable.startswith('UV_') and variable in os.environ):
        found[variable] = between.join(pip[key].split())
print(*(f'export {variable}={shlex.quote(value)}' for variable, value in found.items()), sep='\n')
PY
}

# What pip finds amiss, but for the packages that are left out on purpose (requirements/excludes.in).
check_fit() {
    local found left_out
    found=$("$python" -m pip check) && return
    left_out=$(grep -v '^#' requirements/excludes.in | paste -sd '|')
    ! grep -vE " requires ($left_out), which is not installed" <<<"$found"
}

usable() { "$python" -c "$in_range" && "$python" -m pip --version; } >/dev/null 2>&1

case "$*" in '') tests= ;; --tests) tests=yes ;;
    *) fail "unknown arguments '$*'; the only one is --tests" ;;
esac
case $choice in uv | pip) ;; *) fail "MMPOSENC_INSTALLER must be uv or pip, got '$choice'" ;; esac
case $packages in onedl | openmmlab) ;;
    *) fail "MMPOSENC_SET must be onedl or openmmlab, got '$packages'" ;;
esac
end_if_up_to_date
# Two at once would install over each other. The lock goes with this process, however it ends.
mkdir -p "$(dirname "$venv")" 2>/dev/null && exec 9>>"$venv.lock" ||
    fail "$(dirname "$venv") may not be written to: set MMPOSENC_VENV to another place"
if command -v flock >/dev/null && ! flock -n 9; then
    say "another setup_env is at work on $venv; waiting for it"
    flock 9
    end_if_up_to_date
fi
if ! usable; then
    # A folder that is empty, or no more than a name of an environment, nobody would miss.
    if [ ! -e "$made" ] && ls -A "$venv" 2>/dev/null | grep -qvx pyvenv.cfg; then
        "$python" -m ensurepip >/dev/null 2>&1 && usable ||  # uv makes environments without pip
            fail "$venv is there, and no environment of this script's, nor one with pip and a Python \
of 3.10 to 3.13: move it, or set MMPOSENC_VENV"
    else
        base=$(find_python)
        say "making $venv with $("$base" --version 2>&1) ..."
        mkdir -p "$venv" && : >"$made"
        # Not venv's --clear: killed in between, it would leave an environment that nobody made.
        find "$venv" -mindepth 1 -maxdepth 1 ! -name "${made##*/}" -exec rm -rf {} +
        reason=$("$base" -m venv "$venv" 2>&1) || fail "making $venv failed: ${reason##*$'\n'}"
    fi
fi
[ "$(cat "$held" 2>/dev/null || echo "$packages")" = "$packages" ] || fail "$venv holds the \
$(cat "$held") set, and the two share folders: set MMPOSENC_VENV to another place for $packages"
echo "$packages" >"$held"
[ -z "$tests" ] || : >"$with_tests"
# uv takes what a run that was killed left half way for installed.
again=
[ ! -e "$made" ] || [ ! -e "$log" ] || [ -e "$stamp" ] || again=--reinstall
rm -f "$stamp"

pip=("$python" -m pip --disable-pip-version-check install)
installer=("${pip[@]}")
if [ "$choice" = uv ]; then
    uv=$(command -v uv) || { "${pip[@]}" -r requirements/uv.txt >"$log" 2>&1 && uv=$venv/bin/uv; } ||
        say "going on with pip: it finds no uv (see $log)"
fi
if [ -n "${uv:-}" ]; then
    settings=$(settings_for_uv 2>"$log") || fail "pip's configuration cannot be read (see $log)"
    eval "$settings"
    installer=("$uv" pip install --no-progress --python "$python" $again)
fi
# The locks are complete: nothing is resolved here. The set comes first, so that torch finds what it
# needs. mmcv 2.1.0 is built from source, without operators (its build environment has no torch), by
# a setuptools that has pkg_resources.
if [ "$packages" = openmmlab ]; then
    export PIP_CONSTRAINT=$root/requirements/openmmlab-build.txt
    export UV_BUILD_CONSTRAINT=$PIP_CONSTRAINT
fi
step "installing OpenMMLab (the $packages set)" \
    "${installer[@]}" --no-deps -r "requirements/$packages.txt"
step "installing torch" "${installer[@]}" -r requirements/torch.txt \
    ${again:+--constraint "requirements/$packages.txt"}
[ -z "$tests" ] ||
    step "installing the test tools" "${installer[@]}" --no-deps -r requirements/tests.txt
step "installing mmposenc, editable" \
    "${installer[@]}" --no-deps --no-build-isolation --editable .
step "checking that all of it fits together" check_fit
fingerprint >"$stamp.new"
mv "$stamp.new" "$stamp"
say "$venv is ready ($SECONDS s): source $venv/bin/activate"
