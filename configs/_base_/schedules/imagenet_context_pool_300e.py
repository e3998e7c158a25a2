# As imagenet_swin_300e.py, with gradients clipped at 1 (ContextPool, Sec. 4.1).
_base_ = 'imagenet_swin_300e.py'
optim_wrapper = dict(clip_grad=dict(max_norm=1.0))
