# DETR's schedule: 150 epochs, a step after 100, 16 images a step, a tenth of the rate for the
# backbone. Encodings take no weight decay.
max_epochs = 150
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.0001, weight_decay=0.0001),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    paramwise_cfg=dict(custom_keys={
        'backbone': dict(lr_mult=0.1, decay_mult=1.0),
        'pos_encodings': dict(decay_mult=0.0),
        'rel_pos_encoding': dict(decay_mult=0.0)}))
param_scheduler = [
    dict(type='MultiStepLR', begin=0, end=max_epochs, by_epoch=True, milestones=[100], gamma=0.1)]

auto_scale_lr = dict(enable=False, base_batch_size=16)
