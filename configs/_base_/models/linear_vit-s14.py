# A linear head on a frozen ViT-S/14 in the layout of DINOv2: maps of four blocks, each normed,
# concatenated; trained are the norms and one 1x1 convolution (DINOv2, Sec. 7.4).
# The weights: python tools/prepare_data.py pretrained, or any DINOv2 ViT-S file in their place.
model = dict(
    type='mmposenc.EncoderDecoder',
    data_preprocessor=dict(
        type='mmposenc.SegDataPreProcessor',  # tells the backbone how far each image reaches
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=None,
        size_divisor=14),
    backbone=dict(
        type='mmposenc.ViT',
        arch='dinov2-small',
        out_indices=(2, 5, 8, 11),
        final_norm=False,  # the neck norms every map
        frozen_stages=12,
        mask_padding=True,
        init_cfg=dict(type='Pretrained', checkpoint='data/pretrained/vit-s14.safetensors')),
    neck=dict(type='mmposenc.ConcatPyramid', in_channels=[384, 384, 384, 384]),
    decode_head=dict(
        type='FCNHead',
        in_channels=1536,
        in_index=0,
        channels=1536,
        num_convs=0,
        concat_input=False,
        dropout_ratio=0.0,
        num_classes=150,
        align_corners=False,
        loss_decode=dict(
            type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0, avg_non_ignore=True)),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
