# BCCD: red and white blood cells and platelets, 640x480, in COCO's format in data/bccd: images/,
# annotations/train.json and annotations/val.json.
_base_ = 'trees_detection.py'
data_root = 'data/bccd/'
metainfo = dict(
    classes=('RBC', 'WBC', 'Platelets'), palette=[(220, 60, 60), (60, 60, 220), (60, 160, 60)])

# At half the size the cells are as wide as the tree crowns, 20 to 110 pixels.
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=(320, 240), ratio_range=(0.8, 1.25), keep_ratio=True),
    dict(
        type='RandomFlip',
        prob=[0.25, 0.25, 0.25],
        direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackDetInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=(320, 240), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]

train_dataloader = dict(dataset=dict(times=2, dataset=dict(
    data_root=data_root, data_prefix=dict(img='images/'), metainfo=metainfo,
    pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(
    data_root=data_root, data_prefix=dict(img='images/'), metainfo=metainfo,
    pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(ann_file=data_root + 'annotations/val.json', classwise=True)
test_evaluator = val_evaluator
