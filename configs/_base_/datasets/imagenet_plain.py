# As imagenet.py, augmented by crops and flips only, as ResNets are trained. A step takes 8 x 32.
_base_ = 'imagenet.py'
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='RandomResizedCrop', scale=224),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs')]
train_dataloader = dict(batch_size=32, dataset=dict(pipeline=train_pipeline))
