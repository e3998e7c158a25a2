# A DINO small enough to be trained on a CPU from random weights: the small Deformable DETR with two
# stages and denoising queries.
_base_ = 'deformable-detr_r18-w16.py'
model = dict(
    type='mmposenc.DINO',
    as_two_stage=True,
    positional_encoding=dict(offset=0.0, temperature=20),
    bbox_head=dict(type='DINOHead', loss_cls=dict(loss_weight=1.0)),
    dn_cfg=dict(
        label_noise_scale=0.5, box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=30)))
