# PVT-micro with a PEG after the first block of every stage.
#
#     python tools/train.py configs/classification/small/pvt-micro-peg_fashion.py
_base_ = [
    '../../_base_/models/pvt-micro.py', '../../_base_/datasets/fashion.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(pos_encoding=dict(type='mmposenc.PEG')))
optim_wrapper = dict(optimizer=dict(lr=0.001))
