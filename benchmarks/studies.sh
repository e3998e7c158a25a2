#!/usr/bin/env bash
# Trains the studies of docs/evidence.md again and writes their tables. Each command continues where it was stopped.
# Before it, run `mmposenc prepare mnist5k`, and put CamVid and BCCD where their configs say.
#
#     bash benchmarks/studies.sh
set -e
studies=configs/studies
out=work_dirs/evidence
small=configs/classification/small

long="none learned sincos peg irpe-k irpe-q irpe-v irpe-qk irpe-qkv irpe-bias $studies/irpe.yaml $studies/peg_places.yaml
    $studies/peg_parts.yaml $studies/peg_kernels.yaml $studies/pooling.yaml peg+irpe-k peg+contextpool contextpool
    $studies/context_pool.yaml rotary swin-bias lookhere alibi fire kerple rotary-ntk rotary-yarn liere comrope gta fourier lepe
    rotary-shares crpe undirected-bias dpb conv-mlp factorized"
python benchmarks/digits_long.py --encodings $long  # some got more: --seeds 6
python benchmarks/digits_long.py --encodings none learned peg --scales .5 1.4 --sizes .75 1 1.5 2 --seeds 5 \
    --out $out/digits-long-scales
python benchmarks/digits_long.py --encodings none learned peg rotary rotary-spiral rotary-golden fire pape --scene --sizes 1 1.5 2 4 \
    --out $out/digits-larger
python benchmarks/digits_long.py --encodings irpe-k $studies/irpe_index.yaml --patch 4 --scales .5 1.4 --sizes 1 2 --seeds 3 \
    --out $out/grid8-long

half="--cfg-options train_cfg.max_epochs=20 param_scheduler.1.end=20 param_scheduler.1.T_max=20"
mmposenc compare $small/deit-micro-none_1xb32-40e_mnist5k.py $half --seeds 3 --sizes 0.75 1 1.5 2 --jobs 2 \
    --encodings none learned sincos peg irpe-k rotary swin-bias contextpool peg+irpe-k irpe-q irpe-v irpe-qk irpe-qkv irpe-bias \
    $studies/irpe.yaml $studies/pooling.yaml peg+contextpool $studies/context_pool.yaml --out $out/digits
mmposenc compare $small/deit-micro-none-scales_1xb32-40e_mnist5k.py $half --seeds 3 --sizes 0.75 1 1.5 2 --jobs 2 \
    --encodings none learned peg irpe-k rotary --out $out/digits-scales
mmposenc compare $small/deit-micro-none-p4-scales_1xb32-40e_mnist5k.py $half --seeds 3 --sizes 0.75 1 1.5 2 --jobs 2 \
    --encodings none peg $studies/peg_places.yaml $studies/peg_parts.yaml learned irpe-k $studies/irpe_index.yaml \
    $studies/peg_kernels.yaml --out $out/grid8
mmposenc compare configs/segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py --seeds 3 --sizes 1 1.5 --jobs 2 \
    --encodings none irpe-k peg learned --out $out/camvid
mmposenc compare configs/detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py --seeds 3 --sizes 1 1.5 --jobs 2 \
    --cfg-options train_cfg.max_epochs=6 param_scheduler.1.end=6 param_scheduler.1.T_max=6 \
    --encodings none peg learned --out $out/bccd
python benchmarks/evidence.py --studies $out
