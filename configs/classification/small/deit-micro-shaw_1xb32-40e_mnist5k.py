# DeiT-micro with Shaw's clipped offsets; K = 2 of a grid of 4, for the papers' 8 of 14.
#
#     python tools/train.py configs/classification/small/deit-micro-shaw_1xb32-40e_mnist5k.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/mnist5k.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.ShawRPE', max_offset=2)))
