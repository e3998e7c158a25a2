#!/usr/bin/env bash
# Usage: bash tools/quickstart.sh [arguments of `mmposenc quickstart`]
# Sets up the environment, then fetches a small data set, trains a small model on it (about eight
# minutes on two cores), tests it and draws what it finds; --help says more. Data and results go to
# the current folder. Run again after an interruption, it goes on where it stopped.
#   MMPOSENC_VENV   the virtual environment (default: .venv; see tools/setup_env.sh)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${MMPOSENC_VENV:-$root/.venv}
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac
# Help and wrong arguments need nothing but the standard library: status 3 says that they are right.
for python in "$venv/bin/python" "${MMPOSENC_PYTHON:-python3}"; do
    command -v "$python" >/dev/null || continue
    status=0
    PYTHONPATH=$root "$python" -c 'import sys
from mmposenc.commands.quickstart import parse_args
parse_args(sys.argv[1:])
sys.exit(3)' "$@" || status=$?
    case $status in 0 | 2) exit "$status" ;; esac
    break
done
export PYTHONSAFEPATH=1  # No file of the current folder stands in for a module of Python.
printf 'quickstart: set-up\n'
MMPOSENC_VENV=$venv bash "$root/tools/setup_env.sh"
exec "$venv/bin/python" -m mmposenc quickstart "$@"
