#!/usr/bin/env bash
# Usage: bash tools/run_tests.sh [--all] [arguments of pytest]
# --all runs the slow tests, too: kills, wheel, site, every config, trainings of pages.
# Sets up the environment, then runs ruff, mypy and the tests; stops at the first that fails.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
bash tools/setup_env.sh --tests
venv=${MMPOSENC_VENV:-$root/.venv}
python=$venv/bin/python
# One thread a process, as many processes as cores: faster than the reverse for small tensors.
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
# uv compiles no modules: who imports them first does, or each process anew where this is set.
unset PYTHONDONTWRITEBYTECODE
workers=$("$python" -c 'import os; print(min(len(os.sched_getaffinity(0)), 8))' 2>/dev/null ||
          echo 2)
echo "== ruff";   "$python" -m ruff check .
echo "== imports"; "$venv/bin/lint-imports" --no-cache --no-logo
echo "== mypy";   "$python" -m mypy
echo "== pytest"; "$python" -m pytest -n "$workers" --dist worksteal "$@"
