# 300 epochs, AdamW, 1024 images a step: the schedule of DeiT's release, which CPVT, iRPE and PVT
# take over (CPVT with 2048 images and the learning rate in proportion). As there, norms, biases and
# tokens take no weight decay; nor do encodings (iRPE, supplement, Sec. 2; Twins).
# DeiT's release also keeps an average of the weights (EMA), but reports the weights themselves, so
# there is none here: add custom_hooks = [dict(type='EMAHook', momentum=4e-5)].
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=300, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.001, weight_decay=0.05),  # lr: 0.0005 for 512 images
    paramwise_cfg=dict(
        norm_decay_mult=0.0,
        bias_decay_mult=0.0,
        flat_decay_mult=0.0,
        custom_keys={
            'cls_token': dict(decay_mult=0.0),
            'dist_token': dict(decay_mult=0.0),
            'pos_encodings': dict(decay_mult=0.0),
            'logit_scale': dict(decay_mult=0.0),  # of cosine attention
            'rel_pos_encoding': dict(decay_mult=0.0),
            'rel_pos_encoding.pos_proj': dict(decay_mult=1.0)}))  # a projection of Transformer-XL
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.001, by_epoch=True, begin=0, end=5,
        convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, by_epoch=True, begin=5, end=300, T_max=295)]

auto_scale_lr = dict(enable=False, base_batch_size=1024)
