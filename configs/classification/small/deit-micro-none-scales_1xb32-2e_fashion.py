# DeiT-micro with no position encoding, trained on clothes of several sizes.
#
#     mmposenc compare configs/classification/small/deit-micro-none-scales_1xb32-2e_fashion.py \
#         --encodings none learned peg --out work_dirs/fashion_scales
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/fashion_scales.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
