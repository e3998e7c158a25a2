# 60,000 training and 10,000 test images of clothes, from a local copy of the four files:
# python tools/prepare_data.py fashion DOWNLOADS/fashion
dataset = dict(type='FashionMNIST', data_root='data/fashion', download=False)
resize = dict(type='Resize', scale=32, interpolation='bicubic')
# Clothes hang upright: shifts and flips, no turns. One size: other sizes are kept for the test.
train_pipeline = [
    resize,
    dict(type='NumpyToPIL'),
    dict(type='torchvision/RandomAffine', degrees=0, translate=(0.1, 0.1)),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PILToNumpy'),
    dict(type='PackInputs')]
test_pipeline = [resize, dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=32, num_workers=0, persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'), drop_last=True,
    dataset=dict(split='train', pipeline=train_pipeline, **dataset))
val_dataloader = dict(
    batch_size=250, num_workers=0, persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(split='test', test_mode=True, pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
