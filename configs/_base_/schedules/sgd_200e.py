# 200 epochs of SGD, 128 images a step, as ResNets are trained. Encodings take no weight decay.
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=200, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.0001),
    paramwise_cfg=dict(custom_keys={'context_pools': dict(decay_mult=0.0)}))
param_scheduler = dict(type='MultiStepLR', by_epoch=True, milestones=[100, 150], gamma=0.1)

auto_scale_lr = dict(enable=False, base_batch_size=128)
