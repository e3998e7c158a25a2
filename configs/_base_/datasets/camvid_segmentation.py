# CamVid (SegNet's 11 classes, 367 and 101 images of 480x360) in ADE20K's layout in data/camvid:
# images/ and annotations/, each with training/ and validation/; label 0 is unlabelled. Another
# place: train_dataloader.dataset.data_root and its val and test siblings.
default_scope = 'mmseg'
data_root = 'data/camvid/'
metainfo = dict(
    classes=('sky', 'building', 'pole', 'road', 'pavement', 'tree', 'sign', 'fence', 'car',
             'pedestrian', 'bicyclist'),
    palette=[(128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222),
             (128, 128, 0), (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0),
             (0, 128, 192)])

# One size: what happens at other sizes is measured (benchmarks/segmentation.py).
scale = (256, 192)
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='Resize', scale=scale, keep_ratio=False),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs')]
# Labels are read after the image is resized: predictions are compared at full size.
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=False),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='PackSegInputs')]

train_dataloader = dict(
    batch_size=4,
    num_workers=0,
    persistent_workers=False,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type='mmposenc.SegDataset',
        data_root=data_root,
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        metainfo=metainfo,
        reduce_zero_label=True,
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmposenc.SegDataset',
        data_root=data_root,
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        metainfo=metainfo,
        reduce_zero_label=True,
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator

visualizer = dict(
    type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer',
    alpha=0.5)
