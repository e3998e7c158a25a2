# As imagenet_300e.py, with Swin's longer warm-up and its clipped gradients.
_base_ = 'imagenet_300e.py'
optim_wrapper = dict(clip_grad=dict(max_norm=5.0))
param_scheduler = _base_.param_scheduler
param_scheduler[0].update(end=20)
param_scheduler[1].update(begin=20, T_max=280)
