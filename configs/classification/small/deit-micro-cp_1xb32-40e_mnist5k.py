# DeiT-micro with ContextPool after the first block.
#
#     python tools/train.py configs/classification/small/deit-micro-cp_1xb32-40e_mnist5k.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/mnist5k.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    pos_encoding=dict(type='mmposenc.ContextPool', default_positions=(0,))))
