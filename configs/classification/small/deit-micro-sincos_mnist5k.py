# DeiT-micro with 2-D sines and cosines.
#
#     python tools/train.py configs/classification/small/deit-micro-sincos_mnist5k.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/mnist5k.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(pos_encoding=dict(type='mmposenc.SinCosPositionEncoding')))
