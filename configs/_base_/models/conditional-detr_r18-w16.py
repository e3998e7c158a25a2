# A Conditional DETR small enough to be trained on a CPU from random weights: stride 16, a ResNet-18
# of a quarter of the width, 2 encoder and 3 decoder layers; 256 channels, as mmdet's
# decoder takes no other number.
_base_ = 'conditional-detr_r50.py'
ffn_cfg = dict(embed_dims=256, feedforward_channels=512, num_fcs=2, ffn_drop=0.0)
decoder_attn = dict(embed_dims=256, attn_drop=0.0)
model = dict(
    num_queries=60,
    data_preprocessor=dict(pad_size_divisor=16),
    backbone=dict(
        _delete_=True, type='ResNet', depth=18, base_channels=16, stem_channels=16, num_stages=3,
        strides=(1, 2, 2), dilations=(1, 1, 1), out_indices=(2, )),
    neck=dict(in_channels=[64], out_channels=256),
    encoder=dict(
        num_layers=2,
        layer_cfg=dict(
            self_attn_cfg=dict(embed_dims=256, num_heads=8, dropout=0.0), ffn_cfg=ffn_cfg)),
    decoder=dict(
        num_layers=3,
        layer_cfg=dict(
            self_attn_cfg=decoder_attn, cross_attn_cfg=decoder_attn, ffn_cfg=ffn_cfg)),
    positional_encoding=dict(num_feats=128),
    bbox_head=dict(num_classes=3, embed_dims=256),
    test_cfg=dict(max_per_img=60))
