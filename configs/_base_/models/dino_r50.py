# DINO on ResNet-50, four levels, 900 queries, denoising queries in training: mmdet's
# dino-4scale_r50.
_base_ = 'deformable-detr_r50.py'
ffn_cfg = dict(embed_dims=256, feedforward_channels=2048, num_fcs=2, ffn_drop=0.0)
deformable_cfg = dict(embed_dims=256, num_heads=8, num_levels=4, num_points=4, dropout=0.0)
model = dict(
    type='mmposenc.DINO',
    num_queries=900,
    with_box_refine=True,
    as_two_stage=True,
    encoder=dict(layer_cfg=dict(self_attn_cfg=deformable_cfg, ffn_cfg=ffn_cfg)),
    decoder=dict(layer_cfg=dict(
        self_attn_cfg=dict(dropout=0.0), cross_attn_cfg=deformable_cfg, ffn_cfg=ffn_cfg)),
    positional_encoding=dict(offset=0.0, temperature=20),
    bbox_head=dict(type='DINOHead', loss_cls=dict(loss_weight=1.0)),
    dn_cfg=dict(
        label_noise_scale=0.5, box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=100)),
    test_cfg=dict(max_per_img=300))
