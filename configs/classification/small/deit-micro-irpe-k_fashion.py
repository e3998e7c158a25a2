# DeiT-micro with iRPE: product, contextual, on keys, shared by the heads.
#
#     python tools/train.py configs/classification/small/deit-micro-irpe-k_fashion.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/fashion.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k')))
