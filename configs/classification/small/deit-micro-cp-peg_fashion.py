# DeiT-micro with a PEG and then ContextPool after the first block.
#
#     python tools/train.py configs/classification/small/deit-micro-cp-peg_fashion.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/fashion.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.PEG'), dict(type='mmposenc.ContextPool')]))
