# 40,000 steps of 16 images (8 GPUs x 2), AdamW 1e-3, warm-up, linear decay: linear heads of DINOv2.
_base_ = 'adamw_seg_40k.py'
optim_wrapper = dict(optimizer=dict(lr=0.001, betas=(0.9, 0.999), weight_decay=0.0001))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', power=1.0, eta_min=0.0, begin=1500, end=40000, by_epoch=False)]
auto_scale_lr = dict(base_batch_size=16)
sync_bn = 'torch'
