# 30 epochs at 384 of a model trained at 224, 1024 images a step. ContextPool (Sec. 4.1) takes a
# "similar training recipe as" Swin's paper (App. A2.1), whose learning rate is constant.
_base_ = 'imagenet_300e.py'
train_cfg = dict(max_epochs=30)
optim_wrapper = dict(optimizer=dict(lr=1e-5, weight_decay=1e-8), clip_grad=dict(max_norm=1.0))
param_scheduler = [dict(type='ConstantLR', factor=1.0, by_epoch=True)]
