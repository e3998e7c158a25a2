# 60,000 training and 10,000 test images of clothes, from a local copy of the four files:
# python tools/prepare_data.py fashion DOWNLOADS/fashion
_base_ = 'mnist5k.py'
dataset = dict(type='FashionMNIST', data_root='data/fashion')
resize = dict(type='Resize', scale=32, interpolation='bicubic')
# Clothes hang upright: shifts and flips, no turns. One size: other sizes are kept for the test.
train_pipeline = [
    resize,
    dict(type='NumpyToPIL'),
    dict(type='torchvision/RandomAffine', degrees=0, translate=(0.1, 0.1)),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PILToNumpy'),
    dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline, **dataset))
val_dataloader = dict(dataset=dataset)
test_dataloader = val_dataloader
