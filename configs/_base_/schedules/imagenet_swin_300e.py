# As imagenet_300e.py, with Swin's longer warm-up and its clipped gradients.
_base_ = 'imagenet_300e.py'
optim_wrapper = dict(clip_grad=dict(max_norm=5.0))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.001, by_epoch=True, begin=0, end=20,
        convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=20, end=300, T_max=280)]
