# The same, with padding kept out of training and tests: the images of a batch have several sizes.
#
#     python tools/train.py configs/detection/small/retinanet_r18-w16-kept_fpn_1xb4-12e_bccd.py
_base_ = 'retinanet_r18-w16_fpn_1xb4-12e_bccd.py'
custom_hooks = [
    dict(type='EMAHook', ema_type='ExpMomentumEMA', momentum=0.002, gamma=200),
    dict(type='mmposenc.KeepPaddingOut')]
