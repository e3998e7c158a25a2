# RetinaNet on a frozen ViT-S/14 in the layout of DINOv2: maps of three blocks, each normed,
# concatenated, become levels of strides 7, 14 and 28. 360 thousand parameters are trained.
# The weights: python tools/prepare_data.py pretrained, or any DINOv2 ViT-S file in their place.
_base_ = 'retinanet_pvt-micro-peg.py'
model = dict(
    data_preprocessor=dict(pad_size_divisor=28),
    backbone=dict(
        _delete_=True,
        type='mmposenc.ViT',
        arch='dinov2-small',
        out_indices=(5, 8, 11),
        final_norm=False,  # the neck norms every map
        frozen_stages=12,
        mask_padding=True,
        init_cfg=dict(type='Pretrained', checkpoint='data/pretrained/vit-s14.safetensors')),
    neck=dict(
        _delete_=True,
        type='mmposenc.ConcatPyramid',
        in_channels=[384, 384, 384],
        out_channels=64,
        scales=(2, 1, 0.5)),
    bbox_head=dict(anchor_generator=dict(octave_base_scale=5, strides=[7, 14, 28])))
