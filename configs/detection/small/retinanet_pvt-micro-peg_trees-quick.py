# The quickstart's training, in six minutes on two CPU cores: smaller crops, of which the same time
# takes more, ten epochs instead of twelve, and a picture after every third.
_base_ = 'retinanet_pvt-micro-peg_trees.py'
train_pipeline = _base_.train_pipeline
train_pipeline[3].crop_size = (256, 256)
train_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))
max_epochs = 10
train_cfg = dict(max_epochs=max_epochs, val_interval=3)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
default_hooks = dict(
    logger=dict(interval=100),
    visualization=dict(type='DetVisualizationHook', draw=True, interval=12))  # of 12 images one
