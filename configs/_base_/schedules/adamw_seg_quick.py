# From random weights in a few minutes, in mmseg's scope: 10 epochs, and mmengine's own average of
# the weights, over about the last tenth of the steps taken.
_base_ = 'adamw_quick.py'
max_epochs = 10
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
custom_hooks = [
    dict(type='EMAHook', ema_type='MomentumAnnealingEMA', momentum=0.002, gamma=10)]
