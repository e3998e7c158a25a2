# DeiT-micro with iRPE: product, contextual, on keys, shared by the heads.
#
#     python tools/train.py configs/classification/small/deit-micro-irpe-k_1xb32-40e_mnist5k.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/mnist5k.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k')))
