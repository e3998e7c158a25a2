# DeiT-B: a learned table, a class token.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-b_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    arch='base',
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')), head=dict(in_channels=768))
