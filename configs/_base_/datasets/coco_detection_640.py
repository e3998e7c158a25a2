# COCO with RT-DETR's augmentation: colours, larger canvases, crops, flips; images are stretched to
# 640x640.
_base_ = 'coco_detection.py'

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomApply', transforms=dict(type='PhotoMetricDistortion'), prob=0.5),
    dict(type='Expand', mean=[0, 0, 0], to_rgb=False, ratio_range=(1, 4), prob=0.5),
    dict(type='RandomApply', transforms=dict(type='MinIoURandomCrop'), prob=0.8),
    dict(type='RandomFlip', prob=0.5),
    dict(type='Resize', scale=(640, 640), keep_ratio=False),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1, 1), keep_empty=False),
    dict(type='PackDetInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=(640, 640), keep_ratio=False),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
train_dataloader = dict(batch_size=4, dataset=dict(
    filter_cfg=dict(filter_empty_gt=False), pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
