# DETR on ResNet-50, 100 queries. encoder_pos is the encoder's own encoding; the decoder's keys keep
# theirs (decoder.key_pos).
ffn_cfg = dict(
    embed_dims=256, feedforward_channels=2048, num_fcs=2, ffn_drop=0.1,
    act_cfg=dict(type='ReLU', inplace=True))
attn_cfg = dict(embed_dims=256, num_heads=8, dropout=0.1)
model = dict(
    type='mmposenc.DETR',
    num_queries=100,
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=1),
    backbone=dict(
        type='ResNet',
        depth=50,
        num_stages=4,
        out_indices=(3, ),
        frozen_stages=1,
        norm_cfg=dict(type='BN', requires_grad=False),
        norm_eval=True,
        style='pytorch',
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')),
    neck=dict(
        type='ChannelMapper',
        in_channels=[2048],
        kernel_size=1,
        out_channels=256,
        act_cfg=None,
        norm_cfg=None,
        num_outs=1),
    encoder=dict(
        num_layers=6, encoder_pos='sine', layer_cfg=dict(self_attn_cfg=attn_cfg, ffn_cfg=ffn_cfg)),
    decoder=dict(
        num_layers=6, return_intermediate=True,
        layer_cfg=dict(self_attn_cfg=attn_cfg, cross_attn_cfg=attn_cfg, ffn_cfg=ffn_cfg)),
    positional_encoding=dict(num_feats=128, normalize=True),
    bbox_head=dict(
        type='DETRHead',
        num_classes=80,
        embed_dims=256,
        sync_cls_avg_factor=True,  # one loss whatever the number of processes
        loss_cls=dict(
            type='CrossEntropyLoss', bg_cls_weight=0.1, use_sigmoid=False, loss_weight=1.0,
            class_weight=1.0),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(assigner=dict(type='HungarianAssigner', match_costs=[
        dict(type='ClassificationCost', weight=1.0),
        dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
        dict(type='IoUCost', iou_mode='giou', weight=2.0)])),
    test_cfg=dict(max_per_img=100))
