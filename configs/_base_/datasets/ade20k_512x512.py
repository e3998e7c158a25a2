# ADE20K (150 classes) in data/ade/ADEChallengeData2016, crops of 512x512.
# Label 0 is unlabelled.
default_scope = 'mmseg'
data_root = 'data/ade/ADEChallengeData2016'

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='RandomResize', scale=(2048, 512), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(512, 512), cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs')]
# Sides rounded up to the stride of the last map, as PVT's release does. Labels are read after the
# image is resized: predictions are compared at the picture's own size.
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=(2048, 512), keep_ratio=True),
    dict(type='ResizeToMultiple', size_divisor=32),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='PackSegInputs')]
tta_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale=(2048 * step // 4, 512 * step // 4), keep_ratio=True)
             for step in (2, 3, 4, 5, 6, 7)],  # 0.5 to 1.75 times
            [dict(type='ResizeToMultiple', size_divisor=32)],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='mmposenc.LoadSegAnnotations')],
            [dict(type='PackSegInputs')]])]
tta_model = dict(type='SegTTAModel')

train_dataloader = dict(
    batch_size=4,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='mmposenc.ADE20KDataset',
        data_root=data_root,
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=1,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmposenc.ADE20KDataset',
        data_root=data_root,
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator

visualizer = dict(
    type='SegLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer',
    alpha=0.5)
