# Fluorescent nuclei in 128x128 tiles of one image, the last quarter of its rows held out:
# python tools/prepare_data.py nuclei
_base_ = 'ade20k_512x512.py'
data_root = 'data/nuclei/'
metainfo = dict(classes=('background', 'nucleus'), palette=[(0, 0, 0), (255, 60, 60)])

# Several sizes: tiles that became smaller than the crop are padded, and the padding is masked.
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='RandomResize', scale=(128, 128), ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(128, 128)),
    # Cells have no 'up': with flips of both axes and the diagonal, 4 views.
    dict(
        type='RandomFlip',
        prob=[0.25, 0.25, 0.25],
        direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='PackSegInputs')]
tta_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale=(side, side), keep_ratio=True) for side in (96, 128, 160)],
            [dict(type='RandomFlip', prob=0.0), dict(type='RandomFlip', prob=1.0)],
            [dict(type='mmposenc.LoadSegAnnotations')],
            [dict(type='PackSegInputs')]])]

dataset = dict(
    type='mmposenc.SegDataset', data_root=data_root, img_suffix='.png', metainfo=metainfo)
train_dataloader = dict(
    num_workers=1,
    persistent_workers=False,
    drop_last=True,
    sampler=dict(type='DefaultSampler'),
    # The tiles overlap and are few: an 'epoch' sees each many times, cut anew.
    dataset=dict(
        _delete_=True,
        type='RepeatDataset',
        times=16,
        dataset=dict(
            data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
            pipeline=train_pipeline, **dataset)))
val_dataloader = dict(
    num_workers=1,
    persistent_workers=False,
    dataset=dict(pipeline=test_pipeline, **dataset))
test_dataloader = val_dataloader
