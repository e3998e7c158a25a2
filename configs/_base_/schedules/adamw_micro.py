# From random weights: warm-up, cosine.
max_epochs = 40
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=max_epochs)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.002, weight_decay=0.05),
    clip_grad=dict(max_norm=1.0),
    paramwise_cfg=dict(
        norm_decay_mult=0.0, bias_decay_mult=0.0,
        custom_keys={name: dict(decay_mult=0.0)
                     for name in ('cls_token', 'pos_encodings', 'rel_pos_encoding')}))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.02, by_epoch=False, begin=0, end=120),
    dict(
        type='CosineAnnealingLR', eta_min_ratio=0.01, by_epoch=True, begin=0, end=max_epochs,
        T_max=max_epochs, convert_to_iter_based=True)]
