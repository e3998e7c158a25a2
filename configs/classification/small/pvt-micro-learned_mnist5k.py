# PVT-micro with a learned table in every stage.
#
#     python tools/train.py configs/classification/small/pvt-micro-learned_mnist5k.py
_base_ = [
    '../../_base_/models/pvt-micro.py', '../../_base_/datasets/mnist5k.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')))
optim_wrapper = dict(optimizer=dict(lr=0.001))
