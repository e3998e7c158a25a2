#!/usr/bin/env bash
# Usage: bash tools/dist_train.sh CONFIG GPUS [options of mmposenc train]
# Several machines: set NNODES, NODE_RANK and MASTER_ADDR (and PORT, when 29500 is taken) on each.
# Without GPUs it starts GPUS processes on the CPU.
set -euo pipefail
export PYTHONSAFEPATH=1  # No file of the current folder stands in for a module of Python.
if [ $# -lt 2 ]; then sed -n '2,4p' "$0" | cut -c3- >&2; exit 2; fi
config=$1 gpus=$2
shift 2
exec "${PYTHON:-python}" -m torch.distributed.run \
    --nnodes="${NNODES:-1}" --node_rank="${NODE_RANK:-0}" \
    --master_addr="${MASTER_ADDR:-127.0.0.1}" --master_port="${PORT:-29500}" \
    --nproc_per_node="$gpus" \
    -m mmposenc train "$config" --launcher pytorch "$@"
