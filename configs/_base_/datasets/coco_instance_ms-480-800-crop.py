# COCO with masks and the sizes of the Twins release's 3x: shorter side 480 to 800, longer side at
# most 1333;
# every other image cropped before. (As DETR's, whose crops come from images of any longer side.)
_base_ = 'coco_instance.py'

scales = [(side, 1333) for side in range(480, 801, 32)]
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomChoice', transforms=[
        [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
        [dict(type='RandomChoiceResize', scales=[(400, 1333), (500, 1333), (600, 1333)],
              keep_ratio=True),
         dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600),
              allow_negative_crop=True),
         dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)]]),
    dict(type='PackDetInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
