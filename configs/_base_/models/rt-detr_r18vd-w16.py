# An RT-DETR small enough to be trained on a CPU from random weights: a ResNet-18-vd of a quarter of
# the width, one layer in the neck and three in the decoder, of 96 channels.
_base_ = 'rt-detr_r50vd.py'
attention = dict(embed_dims=96, num_heads=6)
ffn = dict(embed_dims=96, feedforward_channels=192)
model = dict(
    num_queries=100,
    data_preprocessor=dict(batch_augments=None),
    backbone=dict(
        depth=18, base_channels=16, stem_channels=16, frozen_stages=-1,
        norm_cfg=dict(requires_grad=True), norm_eval=False, init_cfg=None),
    neck=dict(
        in_channels=[32, 64, 128], out_channels=96, num_blocks=1, expansion=0.5,
        encoder=dict(layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn))),
    decoder=dict(num_layers=3, layer_cfg=dict(
        self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn)),
    bbox_head=dict(num_classes=1, embed_dims=96),
    test_cfg=dict(max_per_img=100))
