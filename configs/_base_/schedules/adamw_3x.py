# 36 epochs, AdamW with weight decay 0.05, steps after 27 and 33 epochs: the 3x files of the Twins
# release, which keep the decay off norms and PEGs too.
_base_ = 'adamw_1x.py'

train_cfg = dict(max_epochs=36)
optim_wrapper = dict(optimizer=dict(weight_decay=0.05))
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=36, milestones=[27, 33])
