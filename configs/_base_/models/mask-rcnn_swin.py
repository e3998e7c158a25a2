# Mask R-CNN, mmdet's, on Swin-T.
_base_ = 'mask-rcnn_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', drop_path_rate=0.2, mask_padding=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
            'swin_tiny_patch4_window7_224.pth')),
    neck=dict(in_channels=[96, 192, 384, 768]))
