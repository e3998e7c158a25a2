# Deformable DETR's schedule: 50 epochs, a step after 40, 32 images a step, a tenth of the rate for
# the backbone and for where the attention samples.
_base_ = 'detr_50e.py'
optim_wrapper = dict(
    optimizer=dict(lr=0.0002),
    paramwise_cfg=dict(custom_keys={
        'backbone': dict(lr_mult=0.1),
        'sampling_offsets': dict(lr_mult=0.1),
        'reference_points': dict(lr_mult=0.1)}))
