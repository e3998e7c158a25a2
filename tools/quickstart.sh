#!/usr/bin/env bash
# Usage: bash tools/quickstart.sh [detection|segmentation] [--seed N]
# Sets up the environment, fetches a small data set, trains a small model from random weights (at
# most ten minutes on two cores), tests it on what it never saw, prints a table, and leaves pictures
# in <results>/pictures: ground truth on the left, predictions on the right.
#   detection     (the default) tree crowns: RetinaNet on PVT + PEG, tested on a block of the
#                 training plots and on another plot; COCO AP
#   segmentation  nuclei: Semantic FPN on PVT + PEG, tested on a strip of the image, as it is and
#                 with several sizes and flips merged; mIoU
# Run again after an interruption, it goes on where it stopped.
#   MMPOSENC_VENV        the virtual environment (default: .venv)
#   MMPOSENC_QUICKSTART  where results go (default: work_dirs/quickstart for detection,
#                        work_dirs/quickstart-segmentation; with --seed N, -seedN behind it)
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
        detection | segmentation)
            [ -z "$task" ] || fail "one task at a time, got '$task' and '$1'"
            task=$1 ;;
        *) fail "unknown argument '$1'; see bash tools/quickstart.sh --help" ;;
    esac
    shift
done
task=${task:-detection}
case $task in
    detection)
        data=trees
        config=configs/detection/small/retinanet_pvt-micro-peg_trees.py
        default=work_dirs/quickstart
        what="COCO AP of boxes" ;;
    segmentation)
        data=nuclei
        config=configs/segmentation/small/sem_fpn_pvt-micro-peg_nuclei.py
        default=work_dirs/quickstart-segmentation
        what="mIoU, mean and whole pixel accuracy, in percent" ;;
esac

cd "$root"
start=$SECONDS
say() { printf '\nquickstart: %s\n' "$*"; }

say "1/4 set-up"
bash tools/setup_env.sh
python=${MMPOSENC_VENV:-.venv}/bin/python
work=${MMPOSENC_QUICKSTART:-$default${seed:+-seed$seed}}

say "2/4 data"
"$python" tools/prepare_data.py "$data"

say "3/4 training (stop it with Ctrl-C, go on with the same command)"
trained=$SECONDS
if [ -f "$work/trained" ]; then
    echo "already trained; delete $work to train anew"
else
    # Threads that spin while they wait for each other lose far more on a busy machine than they
    # gain on an idle one.
    OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE} \
        "$python" tools/train.py "$config" --work-dir "$work" --resume auto \
        ${seed:+--cfg-options "randomness.seed=$seed"}
    [ -f "$work/last_checkpoint" ] || { echo "quickstart: no checkpoint in $work" >&2; exit 1; }
    cp "$work/last_checkpoint" "$work/trained"
fi
trained=$((SECONDS - trained))
checkpoint=$work/$(basename "$(cat "$work/trained")")

say "4/4 test"
rows=()
# Name of the row, folder, config, further options.
run_test() {
    "$python" tools/test.py "$3" "$checkpoint" --work-dir "$work/test_$2" "${@:4}"
    rows+=("$1=$work/test_$2")
}
if [ "$task" = detection ]; then
    run_test "held-out block of the training plots" block "${config%.py}-block.py" \
        --show-dir "$work/pictures/block"
    run_test "a different plot" other_plot "$config" --show-dir "$work/pictures/other_plot"
else
    run_test "held-out strip" strip "$config" --show-dir "$work/pictures"
    run_test "the same, 3 sizes and flips" strip_tta "$config" --tta
fi

say "$what (training $trained s, everything $((SECONDS - start)) s)"
"$python" tools/show_metrics.py "${rows[@]}"
echo "pictures: $work/pictures (left: ground truth, right: predictions)"
