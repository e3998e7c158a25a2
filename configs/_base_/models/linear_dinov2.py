# A linear head on a frozen DINOv2 ViT-S/14 (Oquab et al., TMLR 2024, Sec. 7.4): BatchNorm of the
# last block's normed map and a 1x1 convolution.
_base_ = 'sem_fpn_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov2-small', frozen_stages=12,
        out_indices=(11,), final_norm='every', mask_padding=True),
    neck=dict(
        _delete_=True, type='mmposenc.ConcatPyramid', in_channels=[384], norm='batch',
        norm_eps=1e-5),
    decode_head=dict(
        _delete_=True,
        type='FCNHead',
        in_channels=384,
        channels=384,
        in_index=0,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=150,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0)),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)))
