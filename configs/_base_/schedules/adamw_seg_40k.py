# 40,000 steps of 32 images, AdamW, poly: PVT's segmentation release (8 GPUs x 4). Norms, PEGs and
# position tables take no weight decay (the release decays them; with 1e-4 it hardly matters).
# It holds the runtime too, because hooks count in iterations here.
_base_ = '../default_runtime.py'
train_cfg = dict(type='IterBasedTrainLoop', max_iters=40000, val_interval=4000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.0002, weight_decay=0.0001),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        custom_keys={
            'cls_token': dict(decay_mult=0.0),
            'pos_encodings': dict(decay_mult=0.0),
            'logit_scale': dict(decay_mult=0.0),  # of cosine attention
            'rel_pos_encoding': dict(decay_mult=0.0)}))
param_scheduler = [
    dict(type='PolyLR', power=0.9, eta_min=0.0, begin=0, end=40000, by_epoch=False)]

default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=4000, save_best='mIoU'))
log_processor = dict(by_epoch=False)
auto_scale_lr = dict(enable=False, base_batch_size=32)
