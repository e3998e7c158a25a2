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
# Without colours, canvases and crops, for the last epochs.
plain_pipeline = [each for each in train_pipeline if each['type'] not in ('RandomApply', 'Expand')]
# What DEIM mixes of several images.
mosaic = dict(type='RandomApply', prob=0.5, transforms=[
    dict(type='CachedMosaic', img_scale=(320, 320), pad_val=0, max_cached_images=50),
    dict(
        type='RandomAffine', max_rotate_degree=10, max_translate_ratio=0.1,
        scaling_ratio_range=(0.5, 1.5), max_shear_degree=0, border_val=(0, 0, 0))])
mixture = dict(
    type='CachedMixUp', img_scale=(640, 640), ratio_range=(1, 1), pad_val=0, max_cached_images=20,
    prob=0.5)
dense_pipeline = [*train_pipeline[:2], mosaic, *train_pipeline[2:-2], mixture, *train_pipeline[-2:]]
# DEIM's: mixed images in epochs 4 to 63 of a training that begins with the plain pipeline.
dense_hooks = [
    dict(type='PipelineSwitchHook', switch_epoch=4, switch_pipeline=dense_pipeline),
    dict(type='PipelineSwitchHook', switch_epoch=64, switch_pipeline=train_pipeline)]
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
