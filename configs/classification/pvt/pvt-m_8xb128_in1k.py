# PVT-medium: a learned table in every stage, a class token in the last. Drop path and clipped
# gradients as the release.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-m_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/pvt_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    arch='medium',
    drop_path_rate=0.3,
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')))
optim_wrapper = dict(clip_grad=dict(max_norm=1.0))
