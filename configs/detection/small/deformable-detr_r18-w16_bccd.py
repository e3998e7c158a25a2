# A small Deformable DETR on blood cells, from random weights: sines and cosines in the encoder.
# The first 18 of 50 epochs gave AP 0.281, AP50 0.536 (docs/results_detr.md).
#
#     python tools/train.py configs/detection/small/deformable-detr_r18-w16_bccd.py
_base_ = [
    '../../_base_/models/deformable-detr_r18-w16.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']
max_epochs = 50
train_dataloader = dict(dataset=dict(times=1))
train_cfg = dict(max_epochs=max_epochs, val_interval=10)
optim_wrapper = dict(
    optimizer=dict(lr=0.0005),
    paramwise_cfg=dict(custom_keys=dict(
        sampling_offsets=dict(lr_mult=0.1), reference_points=dict(lr_mult=0.1))))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.02, by_epoch=False, begin=0, end=100),
    dict(
        type='CosineAnnealingLR', eta_min_ratio=0.01, by_epoch=True, begin=0, end=max_epochs,
        T_max=max_epochs, convert_to_iter_based=True)]
