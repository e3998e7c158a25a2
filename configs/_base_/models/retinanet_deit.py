# RetinaNet on DeiT-S: one map of stride 16 becomes a pyramid of strides 8 to 128 (ViTDet's). All
# blocks
# attend to the whole image, and the class token stays where DeiT's weights have it.
_base_ = 'retinanet_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.DeiT', arch='small', img_size=800, pool='cls',
        out_indices=(11,), final_norm=False, drop_path_rate=0.1, mask_padding=True,
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/deit/deit_small_patch16_224-cd65a155.pth')),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=256,
        scales=(2, 1, 0.5), num_outs=5))
