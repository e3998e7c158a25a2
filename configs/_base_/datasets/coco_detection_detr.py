# COCO with DETR's augmentation: flips; shorter side 480 to 800; every other image cropped before.
_base_ = 'coco_detection.py'

scales = [(side, 1333) for side in range(480, 801, 32)]
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomChoice', transforms=[
        [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
        [dict(type='RandomChoiceResize', scales=[(400, 4200), (500, 4200), (600, 4200)],
              keep_ratio=True),
         dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600),
              allow_negative_crop=True),
         dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)]]),
    dict(type='PackDetInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
