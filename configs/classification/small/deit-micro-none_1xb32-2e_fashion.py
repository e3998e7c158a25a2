# DeiT-micro with no position encoding.
#
#     python tools/train.py configs/classification/small/deit-micro-none_1xb32-2e_fashion.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/fashion.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
