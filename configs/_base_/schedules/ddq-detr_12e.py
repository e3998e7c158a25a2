# The schedule of DDQ DETR in mmdet: DINO's at twice the rate, with a weight decay of 0.05 and 2,000
# steps of warm-up.
_base_ = 'dino_12e.py'
optim_wrapper = dict(optimizer=dict(lr=0.0002, weight_decay=0.05))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.0001, by_epoch=False, begin=0, end=2000),
    dict(type='MultiStepLR', begin=0, end=12, by_epoch=True, milestones=[11], gamma=0.1)]
