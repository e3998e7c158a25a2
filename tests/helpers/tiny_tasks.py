"""A tiny segmentor and a tiny classifier on PVT + PEG, with their data."""
from pathlib import Path

import numpy as np
from PIL import Image

COMMON = """
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.01))
val_cfg, test_cfg = dict(), dict()
visualizer = dict(type='{visualizer}', name='visualizer',
                  vis_backends=[dict(type='LocalVisBackend')])
default_hooks = dict(logger=dict(type='LoggerHook', interval=1))
load_from, resume, randomness = None, False, dict(seed=0)
"""

SEGMENTOR = """
default_scope = 'mmseg'
norm = dict(type='BN')
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor', mean=[100.0] * 3, std=[50.0] * 3, bgr_to_rgb=True,
        size=(32, 32), pad_val=0, seg_pad_val=255),
    backbone=dict(type='mmposenc.PVT', embed_dims=[8] * 4, num_layers=[1] * 4, num_heads=[1] * 4,
                  mlp_ratios=[1] * 4, pos_encoding=dict(type='mmposenc.PEG')),
    decode_head=dict(
        type='FCNHead', in_channels=8, in_index=1, channels=8, num_convs=1, num_classes=2,
        concat_input=False, norm_cfg=norm, dropout_ratio=0,
        loss_decode=dict(type='CrossEntropyLoss')),
    train_cfg=dict(), test_cfg=dict(mode='whole'))
data = dict(
    type='BaseSegDataset', data_root='{root}', img_suffix='.jpg', seg_map_suffix='.png',
    data_prefix=dict(img_path='images', seg_map_path='labels'),
    metainfo=dict(classes=('ground', 'thing'), palette=[[0, 0, 0], [0, 255, 0]]))
train_dataloader = dict(
    batch_size=2, num_workers=0, sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(**data, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'), dict(type='LoadAnnotations'),
        dict(type='RandomFlip', prob=0.5), dict(type='PackSegInputs')]))
test_dataloader = val_dataloader = dict(
    batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(**data, test_mode=True, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'), dict(type='mmposenc.LoadSegAnnotations'),
        dict(type='PackSegInputs')]))
test_evaluator = val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
train_cfg = dict(type='IterBasedTrainLoop', max_iters=2, val_interval=2)
log_processor = dict(by_epoch=False)
"""

CLASSIFIER = """
default_scope = 'mmpretrain'
data_preprocessor = dict(mean=[100.0] * 3, std=[50.0] * 3, to_rgb=True, num_classes=2)
model = dict(
    type='ImageClassifier',
    backbone=dict(type='mmposenc.PVT', embed_dims=[8] * 4, num_layers=[1] * 4, num_heads=[1] * 4,
                  mlp_ratios=[1] * 4, pos_encoding=dict(type='mmposenc.PEG'), pool='gap'),
    head=dict(type='LinearClsHead', num_classes=2, in_channels=8,
              loss=dict(type='CrossEntropyLoss')))
data = dict(type='CustomDataset', data_root='{root}', data_prefix='classes')
train_dataloader = dict(
    batch_size=2, num_workers=0, persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'),
    dataset=dict(**data, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'), dict(type='RandomFlip', prob=0.5),
        dict(type='PackInputs')]))
test_dataloader = val_dataloader = dict(
    batch_size=2, num_workers=0, persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'),
    dataset=dict(**data, pipeline=[
        dict(type='mmposenc.LoadImageFromFile'), dict(type='PackInputs')]))
test_evaluator = val_evaluator = dict(type='Accuracy', topk=(1,))
train_cfg = dict(by_epoch=True, max_epochs=1)
"""


def picture(path: Path, seed: int, value: int = 230) -> np.ndarray:
    """A bright square on noise; returns where it is."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 60, (32, 32, 3), dtype=np.uint8)
    pixels[8:24, 4:20] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    labels = np.zeros((32, 32), dtype=np.uint8)
    labels[8:24, 4:20] = 1
    return labels


def segmentor_config(root: Path) -> Path:
    """Writes three pictures with label maps, and a config that trains on them for two iterations;
    returns the config."""
    (root / 'data' / 'labels').mkdir(parents=True)
    for i in range(3):
        labels = picture(root / 'data' / 'images' / f'scene_{i}.jpg', i)
        Image.fromarray(labels).save(root / 'data' / 'labels' / f'scene_{i}.png')
    config = root / 'seg.py'
    hook = "default_hooks['checkpoint'] = dict(type='CheckpointHook', by_epoch=False, interval=2)\n"
    config.write_text((SEGMENTOR + COMMON).format(
        root=root / 'data', visualizer='SegLocalVisualizer') + hook)
    return config


def classifier_config(root: Path) -> Path:
    """The same of four pictures of two classes, trained for an epoch."""
    for i in range(4):
        kind = ('bright', 'dark')[i % 2]
        picture(root / 'data' / 'classes' / kind / f'image_{i}.png', i, (230, 20)[i % 2])
    config = root / 'cls.py'
    config.write_text((CLASSIFIER + COMMON).format(
        root=root / 'data', visualizer='UniversalVisualizer'))
    return config
