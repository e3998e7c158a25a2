# As imagenet.py, at 256 x 256: images are resized so that the shorter side is 292 and cropped.
_base_ = 'imagenet.py'
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=256, backend='pillow', interpolation='bicubic'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(
        type='RandAugment',
        policies='timm_increasing',
        num_policies=2,
        total_level=10,
        magnitude_level=9,
        magnitude_std=0.5,
        hparams=dict(pad_val=[104, 116, 124], interpolation='bicubic')),
    dict(
        type='RandomErasing',
        erase_prob=0.25,
        mode='rand',
        min_area_ratio=0.02,
        max_area_ratio=1 / 3,
        fill_color=[103.53, 116.28, 123.675],
        fill_std=[57.375, 57.12, 58.395]),
    dict(type='PackInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='ResizeEdge', scale=292, edge='short', backend='pillow', interpolation='bicubic'),
    dict(type='CenterCrop', crop_size=256),
    dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
