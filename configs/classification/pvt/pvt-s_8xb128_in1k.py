# PVT-small: a learned table in every stage, a class token in the last.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-s_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/pvt_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    arch='small',
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')))
