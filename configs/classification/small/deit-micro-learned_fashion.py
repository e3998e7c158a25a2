# DeiT-micro with the learned table of ViT and DeiT.
#
#     python tools/train.py configs/classification/small/deit-micro-learned_fashion.py
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/fashion.py',
    '../../_base_/schedules/adamw_micro_2e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')))
