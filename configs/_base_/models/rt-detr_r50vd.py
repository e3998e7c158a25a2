# RT-DETR on ResNet-50-vd: the release's rtdetr_r50vd, 300 queries. Images are from 0 to 1; batches
# of a training are stretched to squares of 480 to 800 pixels.
act_cfg = dict(type='ReLU', inplace=True)
attention = dict(embed_dims=256, num_heads=8, dropout=0.0)
model = dict(
    type='mmposenc.RTDETR',
    num_queries=300,
    num_feature_levels=3,
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor', mean=[0.0] * 3, std=[255.0] * 3, bgr_to_rgb=True,
        pad_size_divisor=32,
        batch_augments=[dict(
            type='BatchSyncRandomResize', random_size_range=(480, 800), size_divisor=32,
            interval=1)]),
    backbone=dict(
        type='mmposenc.ResNetVD', depth=50, out_indices=(1, 2, 3), frozen_stages=0,
        norm_cfg=dict(type='BN', requires_grad=False), norm_eval=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/lyuwenyu/storage/releases/download/v0.1/'
            'ResNet50_vd_ssld_v2_pretrained_from_paddle.pth')),
    neck=dict(
        type='mmposenc.HybridEncoder', in_channels=[512, 1024, 2048], out_channels=256,
        encoder=dict(num_layers=1, layer_cfg=dict(
            self_attn_cfg=attention,
            ffn_cfg=dict(
                embed_dims=256, feedforward_channels=1024, ffn_drop=0.0,
                act_cfg=dict(type='GELU'))))),
    decoder=dict(num_layers=6, layer_cfg=dict(
        self_attn_cfg=attention,
        cross_attn_cfg=dict(num_levels=3, num_points=4, **attention),
        ffn_cfg=dict(embed_dims=256, feedforward_channels=1024, ffn_drop=0.0, act_cfg=act_cfg))),
    bbox_head=dict(
        type='DINOHead', num_classes=80, embed_dims=256, sync_cls_avg_factor=True,
        loss_cls=dict(type='mmposenc.MatchedVarifocalLoss', alpha=0.75, gamma=2.0),
        loss_bbox=dict(type='L1Loss', loss_weight=5.0),
        loss_iou=dict(type='GIoULoss', loss_weight=2.0)),
    dn_cfg=dict(
        label_noise_scale=0.5, box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=100)),
    train_cfg=dict(assigner=dict(
        type='HungarianAssigner', match_costs=[
            dict(type='FocalLossCost', weight=2.0),
            dict(type='BBoxL1Cost', weight=5.0, box_format='xywh'),
            dict(type='IoUCost', iou_mode='giou', weight=2.0)])),
    test_cfg=dict(max_per_img=300))
