# 160,000 steps of 16 images (8 GPUs x 2), warm-up, linear decay: Swin's segmentation release, with
# which the Twins release trains UperNet too.
_base_ = 'adamw_seg_80k.py'
train_cfg = dict(max_iters=160000, val_interval=16000)
optim_wrapper = dict(optimizer=dict(lr=0.00006, betas=(0.9, 0.999), weight_decay=0.01))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', power=1.0, eta_min=0.0, begin=1500, end=160000, by_epoch=False)]
default_hooks = dict(checkpoint=dict(interval=16000))
