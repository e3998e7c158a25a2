# RT-DETR's schedule: 72 epochs of 16 images a step at a constant rate after 2,000 steps of warm-up,
# averaged weights.
_base_ = 'detr_150e.py'
max_epochs = 72
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(
    optimizer=dict(lr=0.0001, weight_decay=0.0001),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    paramwise_cfg=dict(norm_decay_mult=0.0))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.0005, by_epoch=False, begin=0, end=2000),
    dict(type='ConstantLR', factor=1.0, begin=0, end=max_epochs)]
custom_hooks = [dict(
    type='EMAHook', ema_type='ExpMomentumEMA', momentum=0.0001, gamma=2000, update_buffers=True,
    priority=49)]
