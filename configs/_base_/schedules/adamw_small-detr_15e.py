# 15 epochs from random weights for a small DINO.
_base_ = 'adamw_small-detr_50e.py'
max_epochs = 15
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.02, by_epoch=False, begin=0, end=100),
    dict(
        type='CosineAnnealingLR', eta_min_ratio=0.01, by_epoch=True, begin=0, end=max_epochs,
        T_max=max_epochs, convert_to_iter_based=True)]
