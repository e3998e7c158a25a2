#!/usr/bin/env bash
# Usage: bash tools/lock.sh [--upgrade | --upgrade-package NAME] ...
# Writes the lock files that tools/setup_env.sh installs: requirements/onedl.txt, openmmlab.txt,
# tests.txt, which holds what the test tools need beyond both, and uv.txt. Versions stay as they
# are, but where pyproject.toml or requirements/*.in rule them out or an option of uv asks for more.
# Needs uv (pip install uv) and the package index itself: a mirror may not know every file's hash.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../requirements"
all="(sys_platform == 'linux'|python_full_version < '3.14')"

# compile LOCK ARGS...: markers leave out what [tool.uv] of pyproject.toml says of all.
compile() {
    local lock=$1
    shift
    uv pip compile --quiet --universal --no-python-downloads --python-version 3.10 \
        --generate-hashes --no-annotate --no-header --output-file "$lock" "$@"
    sed -i -E "s/ and $all//g; s/$all and //g; s/ ; $all//" "$lock"
}
names() { sed -n 's/^\([a-z0-9-]*\)==.*/\1/p' "$1" | sort -u; }

pins=$(mktemp)
trap 'rm -f "$pins"' EXIT
from=(../pyproject.toml --excludes excludes.in --build-constraint openmmlab-build.txt)
compile uv.txt uv.in "$@"
compile onedl.txt "${from[@]}" base.in --extra onedl "$@"
# Both sets have the same versions, but for setuptools.
sed -n '/^setuptools=/d; s/ \\$//; /==/p' onedl.txt >"$pins"
compile openmmlab.txt "${from[@]}" base.in --extra openmmlab --constraint "$pins" "$@"
mapfile -t both < <(comm -12 <(names onedl.txt) <(names openmmlab.txt))
compile tests.txt "${from[@]}" --extra dev --constraint "$pins" \
    "${both[@]/#/--no-emit-package=}" "$@"
