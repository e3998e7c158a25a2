#!/usr/bin/env bash
# Usage: bash benchmarks/gpu.sh [--list] [--tiny] a|b|c OUT
# What to run first where there is a GPU, in order of value. Each command ends
# within ten minutes (or is ended: its rows so far are kept), and is done once: run the part again
# after an interruption. Logs and tables (.log, .md) go to the folder OUT, all tables of a part to
# OUT/<part>.md. A row that cannot run says "failed"; so does a command, which a second run repeats.
#   a   the tests that run on a GPU: every encoding, backbone and encoder of DETR against the CPU
#       (tests/devices), and the tests that train
#   b   implementations of attention by size and dtype, DETR's layer (with dropout), ContextPool
#   c   training and inference of whole models against mmdet, timm and all pairs, eager and compiled
#   --list   print the commands, run none
#   --tiny   on the CPU at the smallest sizes, to see that the commands run
#   PYTHON   of an environment with a CUDA build of torch, Triton, torchvision and timm
#            (default: .venv/bin/python)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { echo "gpu.sh: $1; see the head of benchmarks/gpu.sh" >&2; exit 2; }
list=
tiny=
while [ $# -gt 0 ]; do
    case $1 in
        --list) list=1 ;;
        --tiny) tiny=1 ;;
        -*) fail "unknown option '$1'" ;;
        *) break ;;
    esac
    shift
done
case ${1:-} in a | b | c) part=$1 ;; *) fail "needs a part a, b or c, got '${1:-}'" ;; esac
out=${2:-}
[ -n "$out" ] || [ -n "$list" ] || fail "needs a folder OUT for logs and tables"
[ $# -le 2 ] || fail "needs a part and a folder, got also '$3'"
out=${out:-OUT}
python=${PYTHON:-.venv/bin/python}
on=(--device cuda)
[ -z "$tiny" ] || on=(--device cpu --tiny)
failures=0

# item NAME COMMAND...: run once, keep its log and its tables.
item() {
    local name=$1 log=$out/$1.log start=$SECONDS
    shift
    if [ -n "$list" ]; then
        printf '%s: ' "$name"
        printf '%q ' "$@"
        echo
        return
    fi
    if [ -f "$out/$name.done" ]; then
        echo "gpu.sh: $name is done"
        return
    fi
    echo "gpu.sh: $name ..."
    local code=0
    timeout --kill-after 20 580 "$@" >"$log" 2>&1 || code=$?
    grep -E '^\||`python benchmarks/' "$log" >"$out/$name.md" || rm -f "$out/$name.md"
    if [ "$code" = 0 ]; then
        touch "$out/$name.done"
        echo "gpu.sh: $name: $((SECONDS - start)) s"
    else
        failures=$((failures + 1))
        echo "gpu.sh: $name failed ($code, 124: after 580 s); the end of $log:"
        tail -n 3 "$log"
    fi
}

bench() { item "$1" "$python" "benchmarks/$2.py" "${@:3}" "${on[@]}"; }

part_a() {
    item a-environment "$python" -m torch.utils.collect_env
    item a-devices env "MMPOSENC_DEVICE=$([ -n "$tiny" ] && echo meta || echo cuda)" \
        "$python" -m pytest -q --all tests/devices
    [ -z "$tiny" ] || return 0
    # mmengine trains on a GPU where there is one.
    item a-engine "$python" -m pytest -q tests/engine
    item a-tools "$python" -m pytest -q tests/tools/test_detection.py
    item a-trainings "$python" -m pytest -q tests/configs/test_quickstart_configs.py
}

part_b() {
    local dtype length
    # Half of the kinds of terms at a time.
    local first=(--only 'IRPE product k' 'IRPE product bias' RelativePositionBias SASARPE
                 'IRPE product qkv')
    local second=(--only 'IRPE cross k' LogSpacedCPB ShawRPE TransformerXLRPE HuangRPE
                  QueryRelative2D RotaryEmbedding)
    local -A batches=([197]=64 [577]=16 [1050]=2 [4200]=2 [67200]=2)
    implementations() {  # NAME LENGTH DTYPE ENCODINGS...
        bench "$1-$2-$3" relative implementations --rows "$2" --batch "${batches[$2]}" --dtype "$3" "${@:4}"
    }
    for dtype in bfloat16 float32; do
        for length in 1050 4200 67200 197 577; do implementations b "$length" $dtype "${first[@]}"; done
        for length in 1050 4200; do implementations b-more "$length" $dtype "${second[@]}"; done
        bench b-context-pool-$dtype context_pool --dtype $dtype
        bench b-detr-$dtype detr --dtype $dtype --dropout 0.1
        bench b-targets-$dtype relative targets --dtype $dtype
    done
    for length in 1050 4200 197; do implementations b "$length" float16 "${first[@]}"; done
}

part_c() {
    local how dtype case
    local -A batches=(['PVT-tiny 800x1344']=8 ['DETR-R50 800x1344']=4 ['Swin-T 800x1344']=8
                      ['DeiT-S 224']=128 ['RetinaNet PVT-tiny 800x1344']=8)
    for how in eager compile; do
        for dtype in bfloat16 float32; do
            for case in 'PVT-tiny 800x1344' 'DETR-R50 800x1344' 'Swin-T 800x1344' 'DeiT-S 224' \
                        'RetinaNet PVT-tiny 800x1344'; do
                bench "c-$how-${case%% *}-$dtype" models --case "$case" --dtype "$dtype" \
                    --batch "${batches[$case]}" --repeats 5 $([ $how = eager ] || echo --compile)
            done
        done
    done
}

if [ -z "$list" ]; then
    mkdir -p "$out"
    "$python" -c "import sys, torch; sys.exit(not (sys.argv[1:] or torch.cuda.is_available()))" \
        ${tiny:+tiny} || fail "$python has no torch with a GPU that works (PYTHON, or --tiny)"
fi
"part_$part"
if [ -z "$list" ]; then
    find "$out" -maxdepth 1 -name "$part-*.md" -print0 | sort -z |
        xargs -0 -r awk 'FNR == 1 { n = split(FILENAME, path, "/"); print "\n## " path[n] "\n" }
                         { print; if (/`python benchmarks/) print "" }' >"$out/$part.md"
    echo "gpu.sh: tables in $out/$part.md; $failures commands failed"
    [ "$failures" = 0 ]
fi
