#!/usr/bin/env bash
# Usage: bash tools/quickstart.sh [detection] [--seed N]
# Sets up the environment, fetches the tree crowns, trains a small RetinaNet on PVT + PEG from
# random weights (at most ten minutes on two cores), tests it on a block of the training plots that
# it never saw and on another plot, prints COCO AP, and leaves pictures in
# work_dirs/quickstart/pictures: ground truth on the left, predictions on the right.
# Run again after an interruption, it goes on where it stopped.
#   MMPOSENC_VENV        the virtual environment (default: .venv)
#   MMPOSENC_QUICKSTART  where results go (default: work_dirs/quickstart; with --seed N,
#                        work_dirs/quickstart-seedN)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { echo "quickstart: $1" >&2; exit 2; }
task=
seed=
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        --seed)
            seed=${2:-}
            case $seed in '' | *[!0-9]*) fail "--seed needs a whole number, got '$seed'" ;; esac
            shift ;;
        detection)
            [ -z "$task" ] || fail "one task at a time, got '$task' and '$1'"
            task=$1 ;;
        *) fail "unknown argument '$1'; see bash tools/quickstart.sh --help" ;;
    esac
    shift
done

cd "$root"
start=$SECONDS
say() { printf '\nquickstart: %s\n' "$*"; }

say "1/4 set-up"
bash tools/setup_env.sh
python=${MMPOSENC_VENV:-.venv}/bin/python
work=${MMPOSENC_QUICKSTART:-work_dirs/quickstart${seed:+-seed$seed}}
config=configs/detection/small/retinanet_pvt-micro-peg_trees

say "2/4 data"
"$python" tools/prepare_data.py trees

say "3/4 training (stop it with Ctrl-C, go on with the same command)"
trained=$SECONDS
if [ -f "$work/trained" ]; then
    echo "already trained; delete $work to train anew"
else
    # Threads that spin while they wait for each other lose far more on a busy machine than they
    # gain on an idle one.
    OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE} \
        "$python" tools/train.py "$config.py" --work-dir "$work" --resume auto \
        ${seed:+--cfg-options "randomness.seed=$seed"}
    [ -f "$work/last_checkpoint" ] || { echo "quickstart: no checkpoint in $work" >&2; exit 1; }
    cp "$work/last_checkpoint" "$work/trained"
fi
trained=$((SECONDS - trained))
checkpoint=$(cat "$work/trained")

say "4/4 test"
"$python" tools/test.py "$config-block.py" "$checkpoint" --work-dir "$work/test_block" \
    --show-dir "$work/pictures/block"
"$python" tools/test.py "$config.py" "$checkpoint" --work-dir "$work/test_other_plot" \
    --show-dir "$work/pictures/other_plot"

say "COCO AP of boxes (training $trained s, everything $((SECONDS - start)) s)"
"$python" tools/show_metrics.py "held-out block of the training plots=$work/test_block" \
    "a different plot=$work/test_other_plot"
echo "pictures: $work/pictures (left: ground truth, right: predictions)"
