# EoMT on DINOv3's ViT-S/16 for semantic segmentation: 100 queries join the last 3 blocks (the
# release takes 3 for this size, 4 for larger ones).
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
    backbone=dict(
        type='mmposenc.EoMT',
        arch='dinov3-small',
        num_classes=num_classes,
        num_queries=num_queries,
        query_blocks=3,
        mask_padding=True),
    decode_head=dict(
        type='mmposenc.EoMTDecodeHead', num_classes=num_classes, num_queries=num_queries),
    train_cfg=dict(),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)))
