# D-FINE-S on HGNetV2-B0: the release's dfine_hgnetv2_s, 300 queries. Images are from 0 to 1.
_base_ = 'rt-detr_r50vd.py'
model = dict(
    type='mmposenc.DFINE',
    data_preprocessor=dict(batch_augments=None),
    backbone=dict(
        _delete_=True, type='mmposenc.HGNetV2', model_name='hgnetv2_b0', out_indices=(1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/Peterande/storage/releases/download/dfinev1.0/'
            'PPHGNetV2_B0_stage1.pth')),
    neck=dict(in_channels=[256, 512, 1024], fusion='gelan', num_blocks=1, expansion=0.5),
    decoder=dict(num_layers=3, layer_cfg=dict(cross_attn_cfg=dict(num_points=[3, 6, 3]))),
    bbox_head=dict(
        type='mmposenc.DFINEHead', reg_max=32, reg_scale=4.0, fgl_weight=0.15, ddf_weight=1.5))
