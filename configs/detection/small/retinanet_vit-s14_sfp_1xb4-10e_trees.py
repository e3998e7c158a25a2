# The quickstart with a pretrained backbone: tree crowns on tiles enlarged 1.6 times, in which a
# patch of 14 pixels is 9 of the image's. The backbone is frozen and its features are computed once,
# for 4 views of each tile.
#
#     bash tools/quickstart.sh pretrained
_base_ = [
    '../../_base_/models/retinanet_vit-s14.py', '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=(644, 644), ratio_range=(0.8, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(448, 448)),
    dict(
        type='RandomFlip',
        prob=[0.25, 0.25, 0.25],
        direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackDetInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=(644, 644), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
train_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

max_epochs = 10
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
custom_hooks = [
    *_base_.custom_hooks,
    dict(type='mmposenc.FeatureCacheHook', folder='work_dirs/features', views=4)]
