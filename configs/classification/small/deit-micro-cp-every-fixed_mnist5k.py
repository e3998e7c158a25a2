# DeiT-micro with ContextPool of 2 hidden channels and windows of 3 x 3 after every block but the
# last.
#
#     python tools/train.py configs/classification/small/deit-micro-cp-every-fixed_mnist5k.py
_base_ = 'deit-micro-none_mnist5k.py'
model = dict(backbone=dict(pos_encoding=dict(
    type='mmposenc.ContextPool', default_positions='every', hidden_dims=2,
    locality='fixed_window', window_size=3)))
