#!/usr/bin/env bash
# Usage: bash tools/setup_env.sh [--tests]
# Makes a virtual environment with everything locked in requirements/, and mmposenc in it; --tests
# adds what tests, checks and docs need. tools/lock.sh writes the lock files.
#   MMPOSENC_VENV       where (default: .venv at the root of the repository)
#   MMPOSENC_SET        onedl (default) or openmmlab: whose mmengine, mmcv, mmdet, mmseg, mmpretrain
#   MMPOSENC_PYTHON     the Python to make it with (default: the first of 3.10 - 3.13 on the PATH)
#   MMPOSENC_INSTALLER  uv or pip (default: the uv on the PATH, else one that pip puts into the
#                       environment, else pip)
# A second run with the same locks does nothing; after a failed run, the next one repairs. Two at
# once are one: the second waits. An environment that this script did not make is used when it has
# pip, and never deleted.
# pip's configuration and PIP_* hold for uv too: which build of torch it is follows from the index
# (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS). UV_* go before them.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${MMPOSENC_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
cd "$root"
log=$venv/setup.log
stamp=$venv/mmposenc.stamp
packages=${MMPOSENC_SET:-onedl}
made=$venv/mmposenc.made
with_tests=$venv/mmposenc.tests  # once there, test tools are kept in step with the rest
# What pip and uv say when they can't reach an index; "No matching distribution found" is only pip's
# last line.
offline='NewConnectionError|NameResolutionError|ConnectTimeoutError|ProxyError|Connection refused'
offline="$offline|Network is unreachable|Temporary failure in name resolution|Max retries exceeded"
offline="$offline|client error \\(Connect\\)|dns error|network connectivity is disabled"
in_range='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'

say() { printf 'setup_env: %s\n' "$*"; }
fail() { printf 'setup_env: %s\n' "$*" >&2; exit 1; }

find_python() {
    if [ -n "${MMPOSENC_PYTHON:-}" ]; then
        "$MMPOSENC_PYTHON" -c "$in_range" 2>/dev/null || fail "MMPOSENC_PYTHON=$MMPOSENC_PYTHON is \
not a Python of 3.10 to 3.13 ($("$MMPOSENC_PYTHON" --version 2>&1 | head -n 1))"
        echo "$MMPOSENC_PYTHON"
        return
    fi
    local name
    for name in python3 python python3.12 python3.11 python3.13 python3.10; do
        if "$name" -c "$in_range" >/dev/null 2>&1; then echo "$name"; return; fi
    done
    fail "needs Python 3.10 to 3.13, found $(python3 --version 2>&1 | head -n 1); \
name one by MMPOSENC_PYTHON"
}

# What the environment depends on: locks, this script, metadata, the place, the set, whether with
# test tools, the Python.
fingerprint() {
    "$1" - "$root" "$packages" "$tests" <<'PY'
import hashlib, pathlib, sys
root = pathlib.Path(sys.argv[1])
digest = hashlib.sha256(f'{root} {sys.argv[2:]} {sys.version}'.encode())
for path in [*sorted((root / 'requirements').glob('*.txt')), root / 'tools/setup_env.sh',
             root / 'setup.py', root / 'pyproject.toml']:
    digest.update(path.read_bytes())
print(digest.hexdigest())
PY
}

# step WHAT COMMAND...: says what it does and how long it took; one line when it fails.
step() {
    local what=$1 start=$SECONDS
    shift
    say "$what ..."
    printf '\n== %s: %s\n' "$what" "$*" >>"$log"
    if ! "$@" >>"$log" 2>&1; then
        local reason
        if sed -n "/^== $what: /,\$p" "$log" | grep -qiE "$offline"; then
            fail "$what failed: no connection to the package index (all of it: $log; run this \
again when there is one)"
        fi
        reason=$(grep -iE '^(ERROR|[A-Za-z]*Error)' "$log" | tail -n 1 || true)
        fail "$what failed: ${reason:-$(tail -n 1 "$log")} (all of it: $log; run this again to \
repair)"
    fi
    say "  done in $((SECONDS - start)) s"
}

# Sets the installer: a command to which requirements are added; and what makes uv install again what
# a run that was killed may have left half way, which looks installed to it.
find_installer() {
    again=
    pip=("$venv/bin/python" -m pip --disable-pip-version-check install)
    installer=("${pip[@]}")
    [ "${MMPOSENC_INSTALLER:-uv}" = uv ] || return 0
    local settings uv
    settings=$(pip_settings 2>>"$log") || fail "pip's configuration cannot be read (see $log)"
    case $settings in '#'*)
        say "going on with pip: uv has no counterpart of its setting ${settings#\#}"
        return ;;
    esac
    uv=$(command -v uv) || {
        "${pip[@]}" -r requirements/uv.txt >>"$log" 2>&1 || {
            say "going on with pip: it finds no uv (see $log)"
            return
        }
        uv=$venv/bin/uv
    }
    eval "$settings"
    installer=("$uv" pip install --no-progress --python "$venv/bin/python")
    [ -z "$unfinished" ] || again=--reinstall
}

# What uv, which reads nothing of pip's, needs for the same result: as lines of export, but for what
# is set for uv itself; or, after a #, a setting that uv does not have.
pip_settings() {
    "$venv/bin/python" - <<'PY'
import ast, os, shlex, subprocess, sys
listed = subprocess.run([sys.executable, '-m', 'pip', 'config', 'list'], check=True, text=True,
                        stdout=subprocess.PIPE).stdout
sections = {'global': {}, 'install': {}, ':env:': {}}  # each goes before those to its left
for line in listed.splitlines():
    name, _, value = line.partition('=')
    section, _, key = name.rpartition('.')
    sections.get(section, {})[key.replace('_', '-')] = ast.literal_eval(value)
pip = {key: value for section in sections.values() for key, value in section.items() if value}
for key in ('no-index', 'only-binary', 'no-binary', 'client-cert', 'keyring-provider'):
    if pip.get(key, 'no') not in ('0', 'false', 'no', 'off'):
        sys.exit(print(f'#{key}'))
found = {'UV_INDEX_STRATEGY': 'unsafe-best-match'}  # pip's: no index goes before another
for variable, between, *keys in (
        ('UV_DEFAULT_INDEX', ' ', 'index-url'), ('UV_INDEX', ' ', 'extra-index-url'),
        ('UV_FIND_LINKS', ',', 'find-links'), ('UV_CONSTRAINT', ' ', 'constraint'),
        ('UV_INSECURE_HOST', ' ', 'trusted-host'), ('SSL_CERT_FILE', ' ', 'cert'),
        ('ALL_PROXY', ' ', 'proxy'), ('UV_HTTP_TIMEOUT', ' ', 'timeout', 'default-timeout')):
    for key in keys:
        if key in pip:
            found[variable] = between.join(pip[key].split())
for variable, value in found.items():
    if not (variable.startswith('UV_') and variable in os.environ):
        print(f'export {variable}={shlex.quote(value)}')
PY
}

# What pip finds amiss, but for the packages that are left out on purpose (requirements/excludes.in).
check_fit() {
    local found left_out
    found=$("$venv/bin/python" -m pip check) && return
    left_out=$(grep -v '^#' requirements/excludes.in | paste -sd '|')
    ! grep -vE " requires ($left_out), which is not installed" <<<"$found"
}

start=$SECONDS
tests=
case "$*" in
    '') ;;
    --tests) tests=yes ;;
    *) fail "unknown arguments '$*'; the only one is --tests" ;;
esac
case ${MMPOSENC_INSTALLER:-uv} in
    uv | pip) ;;
    *) fail "MMPOSENC_INSTALLER must be uv or pip, got '$MMPOSENC_INSTALLER'" ;;
esac
case $packages in
    onedl | openmmlab) ;;
    *) fail "MMPOSENC_SET must be onedl or openmmlab, got '$packages'" ;;
esac
up_to_date() {
    [ ! -e "$with_tests" ] || tests=yes
    [ -x "$venv/bin/python" ] && [ -f "$stamp" ] &&
        [ "$(fingerprint "$venv/bin/python" 2>/dev/null)" = "$(cat "$stamp")" ]
}
if up_to_date; then
    say "$venv is up to date"
    exit 0
fi

# Two at once would install over each other. The lock goes with this process, however it ends.
mkdir -p "$(dirname "$venv")" 2>/dev/null && exec 9>>"$venv.lock" ||
    fail "$(dirname "$venv") may not be written to: set MMPOSENC_VENV to another place"
if command -v flock >/dev/null && ! flock -n 9; then
    say "another setup_env is at work on $venv; waiting for it"
    flock 9
    if up_to_date; then
        say "$venv is up to date"
        exit 0
    fi
fi

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
    ! "$venv/bin/python" -c "$in_range" 2>/dev/null; then
    if [ -e "$venv" ] && [ ! -d "$venv" ]; then
        fail "$venv is a file: move it, or set MMPOSENC_VENV"
    fi
    # Empty, or no more than a name of an environment: nothing that anybody would miss.
    if [ -d "$venv" ] && [ ! -e "$made" ] && ls -A "$venv" | grep -qvx pyvenv.cfg; then
        if [ ! -e "$venv/pyvenv.cfg" ]; then
            fail "$venv is there and is no virtual environment: move it, or set MMPOSENC_VENV"
        fi
        # uv makes environments without pip; it can be added. Anything else is left as it is.
        "$venv/bin/python" -c "$in_range" 2>/dev/null &&
            "$venv/bin/python" -m ensurepip >/dev/null 2>&1 ||
            fail "$venv is an environment that this script did not make, without pip or with a \
Python outside 3.10 to 3.13: move it, or set MMPOSENC_VENV"
        say "using $venv, to which pip was added"
    else
        python=$(find_python)
        say "making $venv with $("$python" --version 2>&1) ..."
        mkdir -p "$venv" && : >"$made" || fail "$venv can not be made: set MMPOSENC_VENV"
        # Not venv's --clear: killed in between, it would leave an environment that nobody made.
        find "$venv" -mindepth 1 -maxdepth 1 ! -name "${made##*/}" -exec rm -rf {} +
        reason=$("$python" -m venv "$venv" 2>&1) ||
            fail "making $venv failed: $(printf '%s' "$reason" | tail -n 1)"
    fi
fi
held=$(cat "$venv/mmposenc.set" 2>/dev/null || echo "$packages")
[ "$held" = "$packages" ] || fail "$venv holds the $held set, and the two share folders: set \
MMPOSENC_VENV to another place for $packages"
unfinished=
[ ! -e "$made" ] || [ ! -e "$venv/mmposenc.set" ] || [ -e "$stamp" ] || unfinished=yes
echo "$packages" >"$venv/mmposenc.set"
rm -f "$stamp"
: >"$log"
[ -z "$tests" ] || : >"$with_tests"
find_installer
# The locks are complete: nothing is resolved here. The set comes first, so that torch finds what it
# needs. mmcv 2.1.0 is built from source, without operators (its build environment has no torch), by
# a setuptools that has pkg_resources.
if [ "$packages" = openmmlab ]; then
    export PIP_CONSTRAINT=$root/requirements/openmmlab-build.txt
    export UV_BUILD_CONSTRAINT=$PIP_CONSTRAINT
fi
step "installing OpenMMLab (the $packages set)" \
    "${installer[@]}" $again --no-deps -r "requirements/$packages.txt"
step "installing torch" "${installer[@]}" -r requirements/torch.txt \
    $again ${again:+--constraint "requirements/$packages.txt"}
[ -z "$tests" ] ||
    step "installing the test tools" "${installer[@]}" $again --no-deps -r requirements/tests.txt
if ! "$venv/bin/python" -c 'import cv2, re, sys
sys.exit(not re.search("GUI: +NONE", cv2.getBuildInformation()))' 2>/dev/null; then
    # opencv-python, which was there before, shares its folder.
    sed -n '/^opencv-python-headless==/,/[^\\]$/p' "requirements/$packages.txt" >"$venv/opencv.txt"
    step "installing headless OpenCV" "${pip[@]}" --no-deps --force-reinstall -r "$venv/opencv.txt"
fi
step "installing mmposenc, editable" \
    "${installer[@]}" --no-deps --no-build-isolation --editable .
step "checking that all of it fits together" check_fit
# What uv installed has the hashes of the locks. To import it takes half a minute, most of it to
# compile what the first command will compile in any case; so that is tried only after pip, and where
# something was built here. mmposenc comes first: it stands in for compiled operators.
[[ ${installer[0]} != "${pip[0]}" && $packages = onedl ]] ||
    step "checking that all of it imports" env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c \
        "import mmposenc.engine, torchvision, cv2, mmdet.models, mmseg.models, mmpretrain.models
import mmdet.evaluation, mmseg.evaluation"
fingerprint "$venv/bin/python" >"$stamp.new"
mv "$stamp.new" "$stamp"
say "$venv is ready ($((SECONDS - start)) s): source $venv/bin/activate"
