# DeiT-micro with no position encoding, trained on digits of many sizes.
#
#     mmposenc compare configs/classification/small/deit-micro-none-scales_1xb32-40e_mnist5k.py \
#         --encodings none learned peg --out work_dirs/scales
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/mnist5k_scales.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']
