# A convolution of 3x3 and a linear layer on four normed blocks of a frozen DINOv2 ViT-S/14.
_base_ = 'linear_dinov2.py'
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    backbone=dict(out_indices=(2, 5, 8, 11)),
    neck=dict(in_channels=[384, 384, 384, 384]),
    decode_head=dict(
        in_channels=1536, channels=256, num_convs=1, dropout_ratio=0.1, norm_cfg=norm_cfg))
