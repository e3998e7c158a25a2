# DeiT-micro with ContextPool of 2 hidden channels and no weights after every block but the last.
#
#     python tools/train.py configs/classification/small/deit-micro-cp-every-uniform_mnist5k.py
_base_ = 'deit-micro-none_mnist5k.py'
model = dict(backbone=dict(pos_encoding=dict(
    type='mmposenc.ContextPool', default_positions='every', hidden_dims=2,
    weights='uniform')))
