# 50 epochs from random weights for a small Deformable DETR.
_base_ = 'adamw_quick.py'
max_epochs = 50
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
