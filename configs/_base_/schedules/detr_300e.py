# 300 epochs, a step after 200.
_base_ = 'detr_150e.py'
max_epochs = 300
train_cfg = dict(max_epochs=max_epochs)
param_scheduler = [
    dict(type='MultiStepLR', begin=0, end=max_epochs, by_epoch=True, milestones=[200], gamma=0.1)]
