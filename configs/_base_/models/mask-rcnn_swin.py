# Mask R-CNN, mmdet's, on Swin-T.
_base_ = 'mask-rcnn_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', drop_path_rate=0.2, mask_padding=True),
    neck=dict(in_channels=[96, 192, 384, 768]))
