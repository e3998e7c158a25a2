# PVT-micro with no position encoding.
#
#     python tools/train.py configs/classification/small/pvt-micro-none_fashion.py
_base_ = [
    '../../_base_/models/pvt-micro.py', '../../_base_/datasets/fashion.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
optim_wrapper = dict(optimizer=dict(lr=0.001))
