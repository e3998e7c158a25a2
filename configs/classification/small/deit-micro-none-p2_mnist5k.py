# DeiT-micro with patches of 2 pixels, a grid of 16x16 tokens, and no position encoding.
#
#     mmposenc compare configs/classification/small/deit-micro-none-p2_mnist5k.py \
#         --encodings none irpe-k --out work_dirs/grid16
_base_ = 'deit-micro-none_mnist5k.py'
model = dict(backbone=dict(patch_size=2))
