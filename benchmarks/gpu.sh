#!/usr/bin/env bash
# Usage: bash benchmarks/gpu.sh [--list] [--tiny] q|a|b|c OUT
# What to run first where there is a GPU, in order of value. Each command ends within its limit (or
# is ended), and is done once: run the part again after an interruption. Every row of a table lands
# in OUT/rows.csv as soon as it is printed, after the name of its command; OUT/<part>.log has all
# output, OUT/done the names of what is finished. A row that cannot run says "failed"; so does a
# command, which a second run repeats.
#   q   a quarter of an hour: the tests on a GPU, while compilers fill their caches; then whole
#       models by today's choices, eager and compiled, and larger chunks
#   a   the tests that run on a GPU: every encoding, backbone and encoder of DETR against the CPU
#       (tests/devices), and the tests that train
#   b   implementations of attention by size and dtype, DETR's layer (with dropout), ContextPool
#   c   training and inference of whole models against mmdet, timm and all pairs, eager and compiled
#   --list   print the commands, run none
#   --tiny   on the CPU at the smallest sizes, to see that the commands run
#   PYTHON   of an environment with a CUDA build of torch, Triton, torchvision, timm and, for
#            RT-DETR's peer, transformers (default: .venv/bin/python)
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
case ${1:-} in q | a | b | c) part=$1 ;; *) fail "needs a part q, a, b or c, got '${1:-}'" ;; esac
out=${2:-}
[ -n "$out" ] || [ -n "$list" ] || fail "needs a folder OUT for logs and tables"
[ $# -le 2 ] || fail "needs a part and a folder, got also '$3'"
out=${out:-OUT}
python=${PYTHON:-.venv/bin/python}
on=(--device cuda)
[ -z "$tiny" ] || on=(--device cpu --tiny)
failures=0

export PYTHONUNBUFFERED=1 TORCHINDUCTOR_FX_GRAPH_CACHE=1
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-${TMPDIR:-/tmp}/mmposenc-inductor}
limit=580

# rows NAME: the rows of tables in its input as lines of csv.
rows() {
    awk -v name="$1" '/^\|/ && !/^\|-/ {
        gsub(/"/, "\"\""); sub(/^\| */, ""); sub(/ *\|$/, ""); gsub(/ *\| */, "\",\"")
        print "\"" name "\",\"" $0 "\""; fflush() }'
}

# item NAME COMMAND...: run once, keep its output and its rows.
item() {
    local name=$1 log=$out/$part.log start=$SECONDS code=0
    shift
    if [ -n "$list" ]; then
        printf '%s: ' "$name"
        printf '%q ' "$@"
        echo
        return
    fi
    if grep -qx "$name" "$out/done" 2>/dev/null; then
        echo "gpu.sh: $name is done"
        return
    fi
    echo "gpu.sh: $name ..." | tee -a "$log"
    timeout --kill-after 20 "$limit" "$@" 2>&1 | tee -a "$log" | rows "$name" >>"$out/rows.csv" ||
        code=$?
    if [ "$code" = 0 ]; then
        echo "$name" >>"$out/done"
        echo "gpu.sh: $name: $((SECONDS - start)) s"
    else
        failures=$((failures + 1))
        echo "gpu.sh: $name failed ($code, 124: after $limit s); the end of $log:"
        tail -n 3 "$log"
    fi
}

bench() { item "$1" "$python" "benchmarks/$2.py" "${@:3}" "${on[@]}"; }

# What q compiles: NAME CASE BATCH MODELS..., in order of value.
quarter() {  # COMMAND, called with each of them and its dtype
    local dtype
    for dtype in bfloat16 float32; do
        "$1" swin $dtype 'Swin-T 224' 64
        "$1" deit $dtype 'DeiT-S 224' 64 --only timm ours 'ours, iRPE k'
        "$1" pvt $dtype 'PVT-tiny 224' 64
    done
}

quarter_row() { bench "q-$1-$2" models --case "$3" --dtype "$2" --batch "$4" --compile "${@:5}"; }

quarter_warm() {
    timeout 200 "$python" benchmarks/models.py --case "$3" --dtype "$2" --batch "$4" --compile \
        --repeats 1 --no-memory "${@:5}" "${on[@]}" >>"$out/warm.log" 2>&1 &
}

part_q() {
    [ -n "$list$tiny" ] || quarter quarter_warm
    limit=200
    item q-devices env "MMPOSENC_DEVICE=$([ -n "$tiny" ] && echo meta || echo cuda)" \
        "$python" -m pytest -q --tb=line tests/devices
    wait
    limit=100
    quarter quarter_row
    bench q-rt-detr models --case 'RT-DETR-R18 640x640' --dtype bfloat16 --batch 8
    for bytes in 16 64 256; do
        bench "q-chunks-$bytes" relative implementations --rows 4200 --only 'IRPE product k' \
            --dtype bfloat16 --chunk-mib "$bytes"
    done
}

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
    echo "gpu.sh: rows in $out/rows.csv; $failures commands failed"
    [ "$failures" = 0 ]
fi
