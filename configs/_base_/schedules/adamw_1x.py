# 12 epochs, AdamW: the schedule of PVT's detection release, 16 images a step. Norms, PEGs and
# position tables take no weight decay (the release decays them; with 1e-4 it hardly matters).
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.0001, weight_decay=0.0001),
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        custom_keys={
            'pos_encodings': dict(decay_mult=0.0),
            'logit_scale': dict(decay_mult=0.0),  # of cosine attention
            'rel_pos_encoding': dict(decay_mult=0.0)}))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=500),
    dict(type='MultiStepLR', begin=0, end=12, by_epoch=True, milestones=[8, 11], gamma=0.1)]

auto_scale_lr = dict(enable=False, base_batch_size=16)
