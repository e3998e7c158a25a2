# The schedule of PEG in DETR (CPVT's first version): 50 epochs, a step after 40, 32 images a step,
# 2e-5 for the backbone.
_base_ = 'detr_150e.py'
max_epochs = 50
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys={'backbone': dict(lr_mult=0.2)}))
param_scheduler = [
    dict(type='MultiStepLR', begin=0, end=max_epochs, by_epoch=True, milestones=[40], gamma=0.1)]
auto_scale_lr = dict(base_batch_size=32)
