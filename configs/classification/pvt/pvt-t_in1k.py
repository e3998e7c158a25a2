# PVT-tiny: a learned table in every stage, a class token in the last.
# PVT (ICCV 2021), release: top-1 75.1; 13,229,288 parameters. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-t_in1k.py 8
_base_ = [
    '../../_base_/models/pvt_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')))
