# Mask2Former for instances of COCO, but for its backbone and head: mmdet's.
num_classes = 80
model = dict(
    type='Mask2Former',
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        pad_mask=True,
        mask_pad_value=0,
        pad_seg=False),
    panoptic_fusion_head=dict(
        type='MaskFormerFusionHead', num_things_classes=num_classes, num_stuff_classes=0,
        loss_panoptic=None),
    test_cfg=dict(
        panoptic_on=False, semantic_on=False, instance_on=True, max_per_image=100, iou_thr=0.8,
        filter_low_score=True))
