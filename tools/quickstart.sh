#!/usr/bin/env bash
# Usage: bash tools/quickstart.sh [detection|segmentation|pretrained] [--seed N]
#                                [--weights FILE [--arch NAME]]
# Sets up the environment, fetches a small data set, trains a small model from random weights (at
# most ten minutes on two cores), tests it on what it never saw, prints a table, and leaves pictures
# in <results>/pictures: ground truth on the left, predictions on the right.
#   detection     (the default) tree crowns: RetinaNet on PVT + PEG, tested on a block of the
#                 training plots and on another plot; COCO AP
#   segmentation  nuclei: Semantic FPN on PVT + PEG, tested on a strip of the image, as it is and
#                 with several sizes and flips merged; mIoU
#   pretrained    both data sets with a frozen, pretrained ViT-S/14, whose features are computed once:
#                 RetinaNet for the trees, a linear head for the nuclei. 90 MB more to fetch;
#                 --weights FILE takes any file in the layout of DINOv2's ViT-S/14 instead (its own,
#                 timm's or Hugging Face's names), and with --arch, such as dinov2-base or
#                 dinov2-small-reg, of another plain transformer
# Run again after an interruption, it goes on where it stopped.
#   MMPOSENC_VENV        the virtual environment (default: .venv)
#   MMPOSENC_QUICKSTART  where results go (default: work_dirs/quickstart for detection,
#                        work_dirs/quickstart-segmentation and -pretrained; with --seed N, -seedN
#                        behind it)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() { echo "quickstart: $1" >&2; exit 2; }
task=
seed=
weights=
arch=
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
        --seed)
            seed=${2:-}
            case $seed in '' | *[!0-9]*) fail "--seed needs a whole number, got '$seed'" ;; esac
            shift ;;
        --weights)
            weights=${2:-}
            [ -f "$weights" ] || fail "--weights needs a file, got '$weights'"
            weights=$(realpath "$weights")
            shift ;;
        --arch)
            arch=${2:-}
            [ -n "$arch" ] || fail "--arch needs a name, such as dinov2-base"
            shift ;;
        detection | segmentation | pretrained)
            [ -z "$task" ] || fail "one task at a time, got '$task' and '$1'"
            task=$1 ;;
        *) fail "unknown argument '$1'; see bash tools/quickstart.sh --help" ;;
    esac
    shift
done
task=${task:-detection}
if [ -n "$weights" ] && [ "$task" != pretrained ]; then fail "--weights is for 'pretrained'"; fi
if [ -n "$arch" ] && [ -z "$weights" ]; then fail "--arch is of a file: give it by --weights"; fi
trees=configs/detection/small/retinanet_pvt-micro-peg_trees.py
nuclei=configs/segmentation/small/sem_fpn_pvt-micro-peg_nuclei.py
case $task in
    detection) data=(trees) default=work_dirs/quickstart ;;
    segmentation) data=(nuclei) default=work_dirs/quickstart-segmentation ;;
    pretrained)
        data=(trees nuclei)
        [ -n "$weights" ] || data+=(pretrained)
        trees=configs/detection/small/retinanet_vit-s14_trees.py
        nuclei=configs/segmentation/small/linear_vit-s14_nuclei.py
        default=work_dirs/quickstart-pretrained ;;
esac

cd "$root"
start=$SECONDS
say() { printf '\nquickstart: %s\n' "$*"; }

say "1/4 set-up"
bash tools/setup_env.sh
python=${MMPOSENC_VENV:-.venv}/bin/python
results=${MMPOSENC_QUICKSTART:-$default${seed:+-seed$seed}}

say "2/4 data"
for name in "${data[@]}"; do "$python" tools/prepare_data.py "$name"; done

# Config, work directory: trains unless that is done, and sets checkpoint and what tests need.
of_arch=()
train() {
    local options=()
    [ -z "$seed" ] || options+=("randomness.seed=$seed")
    [ -z "$weights" ] || options+=("model.backbone.init_cfg.checkpoint=$weights")
    if [ -n "$arch" ]; then
        mapfile -t of_arch < <("$python" tools/quickstart_options.py "$1" "$arch")
        [ ${#of_arch[@]} -gt 0 ] || exit 1  # it has said why
    fi
    options+=(${of_arch[0]+"${of_arch[@]}"})
    if [ -f "$2/trained" ]; then
        echo "already trained; delete $2 to train anew"
    else
        # Threads that spin while they wait for each other lose far more on a busy machine than they
        # gain on an idle one.
        OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-PASSIVE} \
            "$python" tools/train.py "$1" --work-dir "$2" --resume auto \
            ${options[0]+--cfg-options "${options[@]}"}
        [ -f "$2/last_checkpoint" ] || { echo "quickstart: no checkpoint in $2" >&2; exit 1; }
        cp "$2/last_checkpoint" "$2/trained"
    fi
    checkpoint=$2/$(basename "$(cat "$2/trained")")
}

# Name of the row, config, work directory, folder of the test, further options.
rows=()
run_test() {
    "$python" tools/test.py "$2" "$checkpoint" --work-dir "$3/test_$4" "${@:5}" \
        ${of_arch[0]+--cfg-options "${of_arch[@]}"}
    rows+=("$1=$3/test_$4")
}

table() {
    say "$1 (training $trained s, everything $((SECONDS - start)) s)"
    "$python" tools/show_metrics.py "${rows[@]}"
    rows=()
}

detection() {
    say "3/4 training (stop it with Ctrl-C, go on with the same command)"
    trained=$SECONDS
    train "$trees" "$1"
    trained=$((SECONDS - trained))
    say "4/4 test"
    run_test "held-out block of the training plots" "${trees%.py}-block.py" "$1" block \
        --show-dir "$results/pictures/block"
    run_test "a different plot" "$trees" "$1" other_plot --show-dir "$results/pictures/other_plot"
    table "COCO AP of boxes"
}

segmentation() {
    say "3/4 training (stop it with Ctrl-C, go on with the same command)"
    trained=$SECONDS
    train "$nuclei" "$1"
    trained=$((SECONDS - trained))
    say "4/4 test"
    run_test "held-out strip" "$nuclei" "$1" strip --show-dir "$results/pictures${2:-}"
    [ "$task" = pretrained ] || run_test "the same, 3 sizes and flips" "$nuclei" "$1" strip_tta --tta
    table "mIoU, mean and whole pixel accuracy, in percent"
}

case $task in
    detection) detection "$results" ;;
    segmentation) segmentation "$results" ;;
    pretrained)
        detection "$results/trees"
        segmentation "$results/nuclei" /nuclei ;;
esac
echo "pictures: $results/pictures (left: ground truth, right: predictions)"
