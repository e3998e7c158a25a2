# DeiT-micro with ContextPool of 4 hidden channels after every block but the last.
#
#     python tools/train.py configs/classification/small/deit-micro-cp-every_mnist5k.py
_base_ = 'deit-micro-none_mnist5k.py'
model = dict(backbone=dict(pos_encoding=dict(
    type='mmposenc.ContextPool', default_positions='every', hidden_dims=4)))
