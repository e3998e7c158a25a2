# Mask2Former's head on a ResNet-50 with 100 queries, mmdet's, for objects and for areas. Models add
# the numbers of classes and the losses, whose types have other names in each library.
attn_cfg = dict(embed_dims=256, num_heads=8, dropout=0.0)
ffn_cfg = dict(
    embed_dims=256, num_fcs=2, ffn_drop=0.0, act_cfg=dict(type='ReLU', inplace=True))
mask2former_head = dict(
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
            ffn_cfg=dict(feedforward_channels=2048, **ffn_cfg))))
