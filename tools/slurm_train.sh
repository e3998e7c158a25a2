#!/usr/bin/env bash
# Usage: [GPUS=8] [GPUS_PER_NODE=8] [CPUS_PER_TASK=5] [SRUN_ARGS=...] \
#            bash tools/slurm_train.sh PARTITION JOB_NAME CONFIG WORK_DIR [options of mmposenc train]
set -euo pipefail
export PYTHONSAFEPATH=1  # No file of the current folder stands in for a module of Python.
if [ $# -lt 4 ]; then sed -n '2,3p' "$0" | cut -c3- >&2; exit 2; fi
partition=$1 job=$2 config=$3 work_dir=$4
shift 4
gpus=${GPUS:-8}
per_node=${GPUS_PER_NODE:-$(( gpus < 8 ? gpus : 8 ))}
# shellcheck disable=SC2086  (SRUN_ARGS holds several words)
exec srun -p "$partition" --job-name="$job" --gres="gpu:$per_node" \
    --ntasks="$gpus" --ntasks-per-node="$per_node" --cpus-per-task="${CPUS_PER_TASK:-5}" \
    --kill-on-bad-exit=1 ${SRUN_ARGS:-} \
    "${PYTHON:-python}" -u -m mmposenc train "$config" --work-dir="$work_dir" \
    --launcher slurm "$@"
