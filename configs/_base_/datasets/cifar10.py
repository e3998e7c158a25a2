# CIFAR-10 in data/cifar10 (torchvision's or the original batches), crops and flips. 128 a step.
default_scope = 'mmpretrain'
data_preprocessor = dict(
    num_classes=10, mean=[125.307, 122.961, 113.8575], std=[51.5865, 50.847, 51.255],
    to_rgb=False)
dataset = dict(type='CIFAR10', data_root='data/cifar10', download=False)
train_pipeline = [
    dict(type='RandomCrop', crop_size=32, padding=4),
    dict(type='RandomFlip', prob=0.5, direction='horizontal'),
    dict(type='PackInputs')]
test_pipeline = [dict(type='PackInputs')]
train_dataloader = dict(
    batch_size=128, num_workers=2, persistent_workers=False, drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(split='train', pipeline=train_pipeline, **dataset))
val_dataloader = dict(
    batch_size=128, num_workers=2, persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(split='test', test_mode=True, pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(type='Accuracy', topk=(1,))
test_evaluator = val_evaluator
visualizer = dict(
    type='UniversalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')
