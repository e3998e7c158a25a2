# EoMT's: AdamW 2e-4, a tenth of it for the transformer, polynomial decay after a warm-up; 20,000
# steps of 16 images, 16 epochs of ADE20K.
_base_ = 'mask2former_50e.py'
max_iters = 20000
train_cfg = dict(
    _delete_=True, type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(
    optimizer=dict(lr=0.0002),
    paramwise_cfg=dict(_delete_=True, custom_keys={
        'backbone': dict(lr_mult=0.1),
        'backbone.query': dict(lr_mult=1.0),
        'backbone.predictor': dict(lr_mult=1.0),
        'pos_encodings': dict(lr_mult=0.1, decay_mult=0.0),
        'rel_pos_encoding': dict(lr_mult=0.1, decay_mult=0.0)}))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, begin=0, end=2000, by_epoch=False),
    dict(type='PolyLR', power=0.9, eta_min=0.0, begin=2000, end=max_iters, by_epoch=False)]
custom_hooks = [dict(type='mmposenc.MaskAnnealingHook')]
