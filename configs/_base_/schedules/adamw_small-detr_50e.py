# 50 epochs from random weights for a small Deformable DETR.
_base_ = 'adamw_quick.py'
max_epochs = 50
train_cfg = dict(max_epochs=max_epochs, val_interval=10)
optim_wrapper = dict(
    optimizer=dict(lr=0.0005), constructor='mmposenc.OptimWrapperConstructor',
    paramwise_cfg=dict(custom_keys=dict(
        sampling_offsets=dict(lr_mult=0.1), reference_points=dict(lr_mult=0.1))))
param_scheduler = _base_.param_scheduler
param_scheduler[0].update(end=100)
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
