# PVT-micro with no position encoding.
#
#     python tools/train.py configs/classification/small/pvt-micro-none_1xb32-40e_mnist5k.py
_base_ = [
    '../../_base_/models/pvt-micro.py', '../../_base_/datasets/mnist5k.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']
optim_wrapper = dict(optimizer=dict(lr=0.001))
