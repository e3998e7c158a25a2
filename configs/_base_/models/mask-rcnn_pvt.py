# Mask R-CNN, mmdet's, on PVT. The encoding is the backbone's.
_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'
model = dict(
    data_preprocessor=dict(type='mmposenc.DetDataPreprocessor'),  # for mask_padding
    backbone=dict(
        _delete_=True,
        type='mmposenc.PVT',
        arch='tiny',
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear'),
        mask_padding=True),
    neck=dict(in_channels=[64, 128, 320, 512]))
