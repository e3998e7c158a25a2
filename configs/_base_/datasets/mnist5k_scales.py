# MNIST-5k with digits of many sizes in training: half to 1.4 times as large, which is as large as a
# digit (20 of 28 pixels) can be drawn without cutting it. Images keep their 32 pixels.
_base_ = 'mnist5k.py'
resize = dict(type='Resize', scale=32, interpolation='bicubic')
train_pipeline = [
    resize,
    dict(type='NumpyToPIL'),
    dict(type='torchvision/RandomAffine', degrees=10, translate=(0.1, 0.1), scale=(0.5, 1.4),
         interpolation='bilinear'),
    dict(type='PILToNumpy'),
    dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
