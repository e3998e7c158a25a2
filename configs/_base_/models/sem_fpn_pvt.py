# Semantic FPN on PVT. The encoding is the backbone's: each config below sets it in one line.
norm_cfg = dict(type='SyncBN', requires_grad=True)  # one process makes it BN
model = dict(
    type='mmposenc.EncoderDecoder',  # whose sliding windows know how far each image reaches
    data_preprocessor=dict(
        type='mmposenc.SegDataPreProcessor',  # tells the backbone how far each image reaches
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512)),
    backbone=dict(
        type='mmposenc.PVT',
        arch='tiny',
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear'),
        mask_padding=True),
    neck=dict(type='FPN', in_channels=[64, 128, 320, 512], out_channels=256, num_outs=4),
    decode_head=dict(
        type='FPNHead',
        in_channels=[256, 256, 256, 256],
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=128,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0)),
    train_cfg=dict(),
    # Large images: test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341))
    test_cfg=dict(mode='whole'))
