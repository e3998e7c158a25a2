# EoMT for semantic segmentation, with 100 queries.
_base_ = 'eomt_backbone.py'
num_classes, num_queries = 150, 100
custom_imports = dict(imports='mmdet.models', allow_failed_imports=False)
model = dict(
    type='mmposenc.EncoderDecoder',
    data_preprocessor=dict(
        type='mmposenc.SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512),
        test_cfg=dict(size_divisor=16)),
    backbone=dict(_base_.eomt, num_classes=num_classes, num_queries=num_queries),
    decode_head=dict(
        type='mmposenc.EoMTDecodeHead', num_classes=num_classes, num_queries=num_queries),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)))
