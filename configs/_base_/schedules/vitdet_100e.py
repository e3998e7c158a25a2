# ViTDet's schedule: 184,375 steps of 64 images, 100 epochs of COCO; rates fall by .7 a block from
# the heads to the patches. As in the release norms and the table of positions do not decay, while
# biases and relative positions do.
_base_ = '../default_runtime.py'
max_iters = 184375
interval = 5000
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=interval,
    dynamic_intervals=[(max_iters // interval * interval + 1, max_iters)])
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    constructor='mmposenc.LayerDecayOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=0.0001, weight_decay=0.1, betas=(0.9, 0.999)),
    paramwise_cfg=dict(
        layer_decay_rate=0.7, num_layers=12, norm_decay_mult=0.0, bias_decay_mult=1.0,
        custom_keys={'rel_pos_encoding': dict(decay_mult=1.0)}))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=250),
    dict(type='MultiStepLR', begin=0, end=max_iters, by_epoch=False, milestones=[163889, 177546],
         gamma=0.1)]
default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=interval, save_last=True))
log_processor = dict(by_epoch=False)
auto_scale_lr = dict(enable=False, base_batch_size=64)
