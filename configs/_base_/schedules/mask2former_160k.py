# Mask2Former's schedule for semantic segmentation: 160,000 steps of 16 images, polynomial decay.
_base_ = 'mask2former_50e.py'
train_cfg = dict(_delete_=True, type='IterBasedTrainLoop', max_iters=160000, val_interval=5000)
param_scheduler = [
    dict(type='PolyLR', power=0.9, eta_min=0.0, begin=0, end=160000, by_epoch=False)]
