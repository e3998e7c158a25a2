# 80,000 steps of 16 images (8 GPUs x 2, set in the configs), half the learning rate: the papers of
# PVT and Twins.
_base_ = 'adamw_seg_40k.py'
train_cfg = dict(max_iters=80000, val_interval=8000)
optim_wrapper = dict(optimizer=dict(lr=0.0001))
param_scheduler = [
    dict(type='PolyLR', power=0.9, eta_min=0.0, begin=0, end=80000, by_epoch=False)]
default_hooks = dict(checkpoint=dict(interval=8000))
auto_scale_lr = dict(base_batch_size=16)
