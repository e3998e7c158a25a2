# DeiT-micro with patches of 4 pixels, a grid of 8x8 tokens, and no position encoding, trained on
# digits of many sizes.
#
#     mmposenc compare configs/classification/small/deit-micro-none-p4-scales_mnist5k.py \
#         --encodings none learned peg --out work_dirs/grid8_scales
_base_ = 'deit-micro-none-scales_mnist5k.py'
model = dict(backbone=dict(patch_size=4))
