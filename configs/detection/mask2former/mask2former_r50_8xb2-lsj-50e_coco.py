# Mask2Former on ResNet-50 for instances, as mmdet's: 100 queries, sines and cosines in the pixel
# decoder.
# Recipe: mmdet's Mask2Former, large-scale jitter, 368,750 steps of 16 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask2former/mask2former_r50_8xb2-lsj-50e_coco.py 8
_base_ = [
    '../../_base_/datasets/coco_instance_lsj.py', '../../_base_/schedules/mask2former_50e.py']
num_classes = 80
attn_cfg = dict(embed_dims=256, num_heads=8, dropout=0.0)
ffn_cfg = dict(
    embed_dims=256, num_fcs=2, ffn_drop=0.0, act_cfg=dict(type='ReLU', inplace=True))
panoptic_head = dict(
    type='Mask2FormerHead',
    in_channels=[256, 512, 1024, 2048],
    strides=[4, 8, 16, 32],
    feat_channels=256,
    out_channels=256,
    num_queries=100,
    num_transformer_feat_level=3,
    pixel_decoder=dict(
        type='mmposenc.MSDeformAttnPixelDecoder',
        num_outs=3,
        norm_cfg=dict(type='GN', num_groups=32),
        act_cfg=dict(type='ReLU'),
        encoder=dict(
            num_layers=6, encoder_pos='sine',
            layer_cfg=dict(
                self_attn_cfg=dict(num_levels=3, num_points=4, **attn_cfg),
                ffn_cfg=dict(feedforward_channels=1024, **ffn_cfg))),
        positional_encoding=dict(num_feats=128, normalize=True)),
    enforce_decoder_input_project=False,
    positional_encoding=dict(num_feats=128, normalize=True),
    transformer_decoder=dict(
        return_intermediate=True,
        num_layers=9,
        layer_cfg=dict(
            self_attn_cfg=attn_cfg, cross_attn_cfg=attn_cfg,
            ffn_cfg=dict(feedforward_channels=2048, **ffn_cfg))),
    loss_cls=dict(
        type='CrossEntropyLoss', use_sigmoid=False, loss_weight=2.0, reduction='mean',
        class_weight=[1.0] * num_classes + [0.1]),
    loss_mask=dict(
        type='CrossEntropyLoss', use_sigmoid=True, reduction='mean', loss_weight=5.0),
    loss_dice=dict(
        type='DiceLoss', use_sigmoid=True, activate=True, reduction='mean', naive_dice=True,
        eps=1.0, loss_weight=5.0),
    num_things_classes=num_classes,
    num_stuff_classes=0)
model = dict(
    type='Mask2Former',
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        pad_mask=True,
        mask_pad_value=0,
        pad_seg=False,
        batch_augments=[dict(
            type='BatchFixedSizePad', size=(1024, 1024), img_pad_value=0, pad_mask=True,
            mask_pad_value=0, pad_seg=False)]),
    backbone=dict(
        type='ResNet',
        depth=50,
        num_stages=4,
        out_indices=(0, 1, 2, 3),
        frozen_stages=-1,
        norm_cfg=dict(type='BN', requires_grad=False),
        norm_eval=True,
        style='pytorch',
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')),
    panoptic_head=panoptic_head,
    panoptic_fusion_head=dict(
        type='MaskFormerFusionHead', num_things_classes=num_classes, num_stuff_classes=0,
        loss_panoptic=None),
    train_cfg=dict(
        num_points=12544,
        oversample_ratio=3.0,
        importance_sample_ratio=0.75,
        assigner=dict(type='HungarianAssigner', match_costs=[
            dict(type='ClassificationCost', weight=2.0),
            dict(type='CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
            dict(type='DiceCost', weight=5.0, pred_act=True, eps=1.0)]),
        sampler=dict(type='MaskPseudoSampler')),
    test_cfg=dict(
        panoptic_on=False, semantic_on=False, instance_on=True, max_per_image=100, iou_thr=0.8,
        filter_low_score=True))
