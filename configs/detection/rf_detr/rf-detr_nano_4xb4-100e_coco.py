# RF-DETR-N on DINOv2's ViT-S, 384x384 pixels.
# Recipe: the release's, 100 epochs of 16 images a step at a constant rate, averaged weights, images
# of 224 to 544 pixels; the release begins with weights trained on Objects365.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/rf_detr/rf-detr_nano_4xb4-100e_coco.py 4
_base_ = [
    '../../_base_/models/rf-detr_nano.py', '../../_base_/datasets/coco_detection_640.py',
    '../../_base_/schedules/rt-detr_72e.py', '../../_base_/default_runtime.py']

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomApply', prob=0.5, transforms=[
        dict(
            type='RandomChoiceResize', scales=[(400, 4200), (500, 4200), (600, 4200)],
            keep_ratio=True),
        dict(
            type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600),
            allow_negative_crop=True)]),
    dict(type='Resize', scale=(384, 384), keep_ratio=False),
    dict(type='PackDetInputs')]
test_pipeline = _base_.test_pipeline
test_pipeline[1]['scale'] = (384, 384)
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

max_epochs = 100
train_cfg = dict(max_epochs=max_epochs)
# The backbone begins at 1.5 * 0.7^2 of the rate; each block before the last has 0.8 as much.
optim_wrapper = dict(
    constructor='mmposenc.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(
        _delete_=True, layer_decay_rate=0.8, custom_keys=dict(backbone=dict(lr_mult=0.735))))
param_scheduler = [dict(type='ConstantLR', factor=1.0, begin=0, end=max_epochs)]
custom_hooks = [dict(
    type='EMAHook', ema_type='ExpMomentumEMA', momentum=0.007, gamma=100, update_buffers=True,
    priority=49)]
