# A frozen, pretrained backbone on blood cells at their own size, 640x480. All training has that
# size, so a test at another size or aspect shows what it costs.
#
#     mmposenc prepare pretrained
_base_ = [
    '../../_base_/models/retinanet_vit-s14_sfp.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']

# Cells are 30 to 240 pixels wide: levels of strides 14, 28 and 56.
model = dict(
    neck=dict(scales=(1, 0.5), num_outs=3),
    bbox_head=dict(
        num_classes=3,
        anchor_generator=dict(octave_base_scale=3, strides=[14, 28, 56])))

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
test_pipeline[1]['scale'] = (640, 480)
train_pipeline[2] = test_pipeline[1]
train_pipeline[3] = dict(type='RandomFlip', prob=[0.25, 0.25], direction=['horizontal', 'vertical'])
train_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

max_epochs = 8
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
