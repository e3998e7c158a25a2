# Fashion-MNIST with clothes of many sizes in training: they fill their 28 pixels, so from half of
# that to all of it. Images keep their 32 pixels.
_base_ = 'fashion.py'
resize = dict(type='Resize', scale=32, interpolation='bicubic')
train_pipeline = [
    resize,
    dict(type='NumpyToPIL'),
    dict(type='torchvision/RandomAffine', degrees=0, translate=(0.1, 0.1), scale=(0.5, 1.0),
         interpolation='bilinear'),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PILToNumpy'),
    dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
