# RF-DETR-N: the release's rf-detr-nano, 300 queries, in training 13 groups of them. The ViT-S has
# DINOv2's weights, resized to patches of 16, and attends within 2x2 windows but in three blocks.
act_cfg = dict(type='ReLU', inplace=True)
model = dict(
    type='mmposenc.RFDETR',
    num_queries=300,
    num_feature_levels=1,
    num_groups=13,
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor', mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375], bgr_to_rgb=True, pad_size_divisor=1,
        batch_augments=[dict(
            type='BatchSyncRandomResize', random_size_range=(224, 544), size_divisor=32,
            interval=1)]),
    backbone=dict(
        type='mmposenc.ViT', arch='dinov2-small', patch_size=16, img_size=384,
        out_indices=(2, 5, 8, 11), final_norm='every', window_count=2, window_tokens='copied',
        global_blocks=(3, 6, 9),
        pos_encoding=dict(interpolation='bicubic_antialias', interpolation_offset=0.0),
        init_cfg=dict(type='Pretrained', checkpoint='timm://vit_small_patch14_dinov2.lvd142m')),
    neck=dict(type='mmposenc.MultiScaleProjector', in_channels=[384] * 4, out_channels=256),
    decoder=dict(num_layers=2, layer_cfg=dict(
        self_attn_cfg=dict(embed_dims=256, num_heads=8, dropout=0.0),
        cross_attn_cfg=dict(
            embed_dims=256, num_heads=16, num_levels=1, num_points=2, dropout=0.0),
        ffn_cfg=dict(embed_dims=256, feedforward_channels=2048, ffn_drop=0.0, act_cfg=act_cfg))),
    bbox_head=dict(
        type='mmposenc.RFDETRHead', num_classes=80, embed_dims=256, sync_cls_avg_factor=True,
        loss_cls=dict(type='mmposenc.IoUAwareBCELoss', alpha=0.25, gamma=2.0),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(assigner=dict(
        type='HungarianAssigner', match_costs=[
            dict(type='FocalLossCost', weight=2.0),
            dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
            dict(type='IoUCost', iou_mode='giou', weight=2.0)])),
    test_cfg=dict(max_per_img=300))
