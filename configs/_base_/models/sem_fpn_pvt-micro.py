# A Semantic FPN small enough to be trained on a CPU in minutes. GroupNorm: batches are small.
_base_ = 'sem_fpn_pvt.py'

norm_cfg = dict(type='GN', num_groups=8, requires_grad=True)
model = dict(
    data_preprocessor=dict(size=None, size_divisor=32),
    backbone=dict(
        arch=None,
        embed_dims=(32, 64, 128, 256),
        num_layers=(2, 2, 2, 2),
        num_heads=(1, 2, 4, 8),
        mlp_ratios=(4, 4, 4, 4),
        drop_path_rate=0.0,
        pos_encoding=None),
    neck=dict(in_channels=[32, 64, 128, 256], out_channels=32),
    decode_head=dict(
        in_channels=[32, 32, 32, 32],
        channels=32,
        dropout_ratio=0.0,
        num_classes=2,  # of the data set
        norm_cfg=norm_cfg,
        # An image's loss does not depend on how much of its batch is padding.
        loss_decode=dict(avg_non_ignore=True)))
