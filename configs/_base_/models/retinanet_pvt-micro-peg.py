# A RetinaNet small enough to be trained on a CPU in minutes: 3.0 million parameters.
_base_ = 'retinanet_pvt.py'

norm_cfg = dict(type='GN', num_groups=8, requires_grad=True)
model = dict(
    backbone=dict(
        arch=None,
        embed_dims=(32, 64, 128, 256),
        num_layers=(2, 2, 2, 2),
        num_heads=(1, 2, 4, 8),
        mlp_ratios=(4, 4, 4, 4),
        drop_path_rate=0.0,
        pos_encoding=dict(_delete_=True, type='mmposenc.PEG')),
    # For nearly square objects 10 to 130 pixels wide: strides 8 to 32, square anchors.
    neck=dict(
        in_channels=[32, 64, 128, 256], out_channels=64, add_extra_convs=False, num_outs=3,
        norm_cfg=norm_cfg),
    bbox_head=dict(
        num_classes=1,  # of the data set
        in_channels=64,
        feat_channels=64,
        stacked_convs=2,
        norm_cfg=norm_cfg,
        anchor_generator=dict(
            octave_base_scale=3, scales_per_octave=2, ratios=[1.0], strides=[8, 16, 32]),
        reg_decoded_bbox=True,
        loss_bbox=dict(_delete_=True, type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(assigner=dict(min_pos_iou=0.15)),
    test_cfg=dict(score_thr=0.02))
