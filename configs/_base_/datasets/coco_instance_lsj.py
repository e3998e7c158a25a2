# COCO 2017 with masks and large-scale jitter (Ghiasi et al., CVPR 2021): images of a tenth to twice
# 1024 pixels, cut or padded to 1024x1024.
_base_ = 'coco_instance.py'

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile', to_float32=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomResize', scale=(1024, 1024), ratio_range=(0.1, 2.0), resize_type='Resize',
        keep_ratio=True),
    dict(
        type='RandomCrop', crop_size=(1024, 1024), crop_type='absolute', recompute_bbox=True,
        allow_negative_crop=True),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1e-5, 1e-5), by_mask=True),
    dict(type='PackDetInputs')]
train_dataloader = dict(
    sampler=dict(_delete_=True, type='InfiniteSampler', shuffle=True),
    dataset=dict(pipeline=train_pipeline))
