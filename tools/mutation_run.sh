#!/usr/bin/env bash
# Usage: bash tools/mutation_run.sh [N [FILE or FOLDER ...]]
# Changes the code in N places (default 30), one at a time, drawn from the files in turns (default:
# the seven rooms of tools/mutation_run.py), and says which tests notice a change: the file of its
# own name, its room's, the rest (TESTS), the room's slow ones, or none.
#   MMPOSENC_VENV   the environment that runs the tests (default: .venv; see setup_env.sh)
#   SEED            another number draws other places (default 0)
#   TESTS           the rest (default: the tests of the core)
# It works on a copy of the checkout. A change that the test file of its own name notices costs
# seconds, one that lives all of them, minutes. At the end it runs, without a change, the tests that
# noticed one.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${MMPOSENC_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
own=$root/.venv-mutation
cd "$root"
"$venv/bin/python" -c 'import pytest' 2>/dev/null || {
    echo "mutation_run: $venv has no pytest; run bash tools/setup_env.sh --tests" >&2; exit 1; }
if ! "$own/bin/python" -c 'import cosmic_ray' 2>/dev/null; then
    echo "mutation_run: making $own ..."
    "$venv/bin/python" -m venv --clear "$own"
    "$own/bin/python" -m pip install --quiet --disable-pip-version-check \
        -r requirements/mutation.txt
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done |
    xargs -0 cp --parents -t "$copy"
cd "$copy"
"$own/bin/python" tools/mutation_run.py "$venv/bin/python" "${SEED:-0}" \
    "${TESTS:-tests/functional tests/attention tests/encodings tests/padding tests/backbones
    tests/checkpoint tests/detr tests/test_refused_options.py}" "$@"
