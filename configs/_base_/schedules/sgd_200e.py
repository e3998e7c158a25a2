# 200 epochs of SGD, 128 images a step, as ResNets are trained on small images.
_base_ = 'sgd_100e.py'
train_cfg = dict(max_epochs=200)
param_scheduler = dict(milestones=[100, 150])
auto_scale_lr = dict(base_batch_size=128)
