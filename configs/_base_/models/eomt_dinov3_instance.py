# EoMT on DINOv3's ViT-S/16 for instances: 200 queries join the last 3 blocks.
num_classes, num_queries = 80, 200
model = dict(
    type='Mask2Former',
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=16,
        pad_mask=True,
        mask_pad_value=0,
        pad_seg=False),
    backbone=dict(
        type='mmposenc.EoMT',
        arch='dinov3-small',
        num_classes=num_classes,
        num_queries=num_queries,
        query_blocks=3,
        mask_padding=True),
    panoptic_head=dict(
        type='mmposenc.EoMTHead', num_things_classes=num_classes, num_queries=num_queries),
    panoptic_fusion_head=dict(
        type='MaskFormerFusionHead', num_things_classes=num_classes, num_stuff_classes=0,
        loss_panoptic=None),
    test_cfg=dict(
        panoptic_on=False, semantic_on=False, instance_on=True, max_per_image=100, iou_thr=0.8,
        filter_low_score=True))
