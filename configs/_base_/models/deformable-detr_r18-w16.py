# A Deformable DETR small enough to be trained on a CPU from random weights: one level of stride 16,
# a ResNet-18 of a quarter of the width, 2 encoder and 3 decoder layers of 128 channels.
_base_ = 'deformable-detr_r50.py'
ffn_cfg = dict(embed_dims=128, feedforward_channels=256, num_fcs=2, ffn_drop=0.0)
deformable_cfg = dict(embed_dims=128, num_heads=8, num_levels=1, num_points=4, dropout=0.0)
model = dict(
    num_queries=60,
    num_feature_levels=1,
    with_box_refine=True,
    data_preprocessor=dict(pad_size_divisor=16),
    backbone=dict(
        _delete_=True, type='ResNet', depth=18, base_channels=16, stem_channels=16, num_stages=3,
        strides=(1, 2, 2), dilations=(1, 1, 1), out_indices=(2, )),
    neck=dict(in_channels=[64], out_channels=128, num_outs=1),
    encoder=dict(
        num_layers=2, layer_cfg=dict(self_attn_cfg=deformable_cfg, ffn_cfg=ffn_cfg)),
    decoder=dict(
        num_layers=3, post_norm_cfg=None,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=128, num_heads=8, dropout=0.0),
            cross_attn_cfg=deformable_cfg, ffn_cfg=ffn_cfg)),
    positional_encoding=dict(num_feats=64),
    bbox_head=dict(num_classes=3, embed_dims=128),
    test_cfg=dict(max_per_img=60))
