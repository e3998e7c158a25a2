# COCO with training images of shorter side 640 to 800 and longer side at most 1333, as in PVT's
# paper (the Twins release also crops, and goes down to 480).
_base_ = 'coco_detection.py'

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=[(1333, 640), (1333, 800)], keep_ratio=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
