# Mask2Former's schedule: 368,750 steps of 16 images, 50 epochs of COCO; a tenth of the rate for the
# backbone; neither norms, queries nor encodings decay.
_base_ = '../default_runtime.py'
max_iters = 368750
interval = 5000
train_cfg = dict(
    type='IterBasedTrainLoop', max_iters=max_iters, val_interval=interval,
    dynamic_intervals=[(max_iters // interval * interval + 1, max_iters)])
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
no_decay = dict(decay_mult=0.0)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.0001, weight_decay=0.05, eps=1e-8, betas=(0.9, 0.999)),
    clip_grad=dict(max_norm=0.01, norm_type=2),
    paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys={
        'backbone': dict(lr_mult=0.1, decay_mult=1.0),
        'query_embed': no_decay,
        'query_feat': no_decay,
        'level_embed': no_decay,
        'pos_encodings': no_decay,
        'rel_pos_encoding': no_decay}))
param_scheduler = [
    dict(type='MultiStepLR', begin=0, end=max_iters, by_epoch=False, milestones=[327778, 355092],
         gamma=0.1)]
default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=interval, save_last=True))
log_processor = dict(by_epoch=False)
auto_scale_lr = dict(enable=False, base_batch_size=16)
