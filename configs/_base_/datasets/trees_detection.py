# Tree crowns in aerial images, 400x400 tiles: python tools/prepare_data.py trees
# Tested on another plot than those trained on; retinanet_pvt-micro-peg_fpn_1xb4-12e_trees-block.py
# tests on a held-out block of the training plots.
default_scope = 'mmdet'
data_root = 'data/trees/'
metainfo = dict(classes=('tree',), palette=[(255, 60, 60)])

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=(400, 400), ratio_range=(0.8, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(320, 320)),
    # Seen from above there is no 'up': with flips of both axes and the diagonal, 4 views.
    dict(
        type='RandomFlip',
        prob=[0.25, 0.25, 0.25],
        direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackDetInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=(400, 400), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]

train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    persistent_workers=False,
    sampler=dict(type='DefaultSampler', shuffle=True),
    # The tiles overlap and are few: an 'epoch' sees each three times, cut anew.
    dataset=dict(
        type='RepeatDataset',
        times=3,
        dataset=dict(
            type='mmposenc.CocoDataset',
            data_root=data_root,
            ann_file='annotations/train.json',
            data_prefix=dict(img='images/train/'),
            metainfo=metainfo,
            pipeline=train_pipeline)))
val_dataloader = dict(
    batch_size=1,
    num_workers=1,
    persistent_workers=False,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='mmposenc.CocoDataset',
        data_root=data_root,
        ann_file='annotations/val.json',
        data_prefix=dict(img='images/val/'),
        metainfo=metainfo,
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = val_dataloader

# The fullest tile has 49 boxes, so COCO's usual limit of 100 detections takes nothing away.
val_evaluator = dict(type='CocoMetric', ann_file=data_root + 'annotations/val.json', metric='bbox')
test_evaluator = val_evaluator

visualizer = dict(
    type='DetLocalVisualizer', vis_backends=[dict(type='LocalVisBackend')], name='visualizer')
