# DeiT-micro with patches of 4 pixels, a grid of 8x8 tokens, and no position encoding.
#
#     mmposenc compare configs/classification/small/deit-micro-none-p4_mnist5k.py \
#         --encodings none irpe-k --out work_dirs/grid8
_base_ = 'deit-micro-none_mnist5k.py'
model = dict(backbone=dict(patch_size=4))
