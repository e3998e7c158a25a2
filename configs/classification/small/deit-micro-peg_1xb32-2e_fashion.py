# DeiT-micro with a PEG after the first block: CPVT.
#
#     python tools/train.py configs/classification/small/deit-micro-peg_1xb32-2e_fashion.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/fashion.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(pos_encoding=dict(type='mmposenc.PEG')))
