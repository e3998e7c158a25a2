# DINO's schedule: 12 epochs, a step after 11, 16 images a step, a tenth of the rate for the
# backbone.
_base_ = 'detr_150e.py'
max_epochs = 12
train_cfg = dict(max_epochs=max_epochs)
param_scheduler = [
    dict(type='MultiStepLR', begin=0, end=max_epochs, by_epoch=True, milestones=[11], gamma=0.1)]
