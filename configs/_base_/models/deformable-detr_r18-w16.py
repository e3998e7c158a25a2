# A Deformable DETR small enough to be trained on a CPU from random weights: one level of stride 16,
# a ResNet-18 of a quarter of the width, 2 encoder and 3 decoder layers of 128 channels.
ffn_cfg = dict(embed_dims=128, feedforward_channels=256, num_fcs=2, ffn_drop=0.0)
deformable_cfg = dict(embed_dims=128, num_heads=8, num_levels=1, num_points=4, dropout=0.0)
model = dict(
    type='mmposenc.DeformableDETR',
    num_queries=60,
    num_feature_levels=1,
    with_box_refine=True,
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=16),
    backbone=dict(
        type='ResNet', depth=18, base_channels=16, stem_channels=16, num_stages=3,
        strides=(1, 2, 2), dilations=(1, 1, 1), out_indices=(2, )),
    neck=dict(
        type='ChannelMapper', in_channels=[64], kernel_size=1, out_channels=128, act_cfg=None,
        norm_cfg=dict(type='GN', num_groups=32), num_outs=1),
    encoder=dict(
        num_layers=2, encoder_pos='sine',
        layer_cfg=dict(self_attn_cfg=deformable_cfg, ffn_cfg=ffn_cfg)),
    decoder=dict(
        num_layers=3, return_intermediate=True, post_norm_cfg=None,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=128, num_heads=8, dropout=0.0),
            cross_attn_cfg=deformable_cfg, ffn_cfg=ffn_cfg)),
    positional_encoding=dict(num_feats=64, normalize=True, offset=-0.5),
    bbox_head=dict(
        type='DeformableDETRHead',
        num_classes=3,
        embed_dims=128,
        sync_cls_avg_factor=True,
        loss_cls=dict(type='FocalLoss', use_sigmoid=True, gamma=2.0, alpha=0.25, loss_weight=2.0),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(assigner=dict(type='HungarianAssigner', match_costs=[
        dict(type='FocalLossCost', weight=2.0),
        dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
        dict(type='IoUCost', iou_mode='giou', weight=2.0)])),
    test_cfg=dict(max_per_img=60))
