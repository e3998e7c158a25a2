# Mask2Former on ResNet-50 for semantic segmentation, 100 queries: mmseg's. Its head is mmdet's.
_base_ = 'mask2former_head.py'
custom_imports = dict(imports='mmdet.models', allow_failed_imports=False)
num_classes = 150
decode_head = dict(
    _base_.mask2former_head,
    loss_cls=dict(
        type='mmdet.CrossEntropyLoss', use_sigmoid=False, loss_weight=2.0, reduction='mean',
        class_weight=[1.0] * num_classes + [0.1]),
    loss_mask=dict(
        type='mmdet.CrossEntropyLoss', use_sigmoid=True, reduction='mean', loss_weight=5.0),
    loss_dice=dict(
        type='mmdet.DiceLoss', use_sigmoid=True, activate=True, reduction='mean', naive_dice=True,
        eps=1.0, loss_weight=5.0),
    num_classes=num_classes,
    align_corners=False,
    train_cfg=dict(
        num_points=12544,
        oversample_ratio=3.0,
        importance_sample_ratio=0.75,
        assigner=dict(type='mmdet.HungarianAssigner', match_costs=[
            dict(type='mmdet.ClassificationCost', weight=2.0),
            dict(type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
            dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0)]),
        sampler=dict(type='mmdet.MaskPseudoSampler')))
model = dict(
    type='mmposenc.EncoderDecoder',
    data_preprocessor=dict(
        type='mmposenc.SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512),
        test_cfg=dict(size_divisor=32)),
    backbone=dict(
        type='ResNet',
        depth=50,
        num_stages=4,
        out_indices=(0, 1, 2, 3),
        frozen_stages=-1,
        norm_cfg=dict(type='SyncBN', requires_grad=False),
        style='pytorch',
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')),
    decode_head=decode_head,
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
