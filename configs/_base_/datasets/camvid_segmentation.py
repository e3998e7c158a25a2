# CamVid (SegNet's 11 classes, 367 and 101 images of 480x360) in ADE20K's layout in data/camvid:
# images/ and annotations/, each with training/ and validation/; label 0 is unlabelled. Another
# place: train_dataloader.dataset.data_root and its val and test siblings.
_base_ = 'ade20k_512x512.py'
data_root = 'data/camvid/'
metainfo = dict(
    classes=('sky', 'building', 'pole', 'road', 'pavement', 'tree', 'sign', 'fence', 'car',
             'pedestrian', 'bicyclist'),
    palette=[(128, 128, 128), (128, 0, 0), (192, 192, 128), (128, 64, 128), (60, 40, 222),
             (128, 128, 0), (192, 128, 128), (64, 64, 128), (64, 0, 128), (64, 64, 0),
             (0, 128, 192)])

# One size: what happens at other sizes is measured (mmposenc compare --sizes).
scale = (256, 192)
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='Resize', scale=scale, keep_ratio=False),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=False),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='PackSegInputs')]
tta_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale=size, keep_ratio=False)
             for size in ((192, 144), scale, (320, 240))],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='mmposenc.LoadSegAnnotations')],
            [dict(type='PackSegInputs')]])]

dataset = dict(
    type='mmposenc.SegDataset', data_root=data_root, metainfo=metainfo, reduce_zero_label=True)
train_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    drop_last=True,
    sampler=dict(type='DefaultSampler'),
    dataset=dict(pipeline=train_pipeline, **dataset))
val_dataloader = dict(
    num_workers=0,
    persistent_workers=False,
    dataset=dict(pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
