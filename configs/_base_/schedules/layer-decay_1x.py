# 12 epochs of 16 images, AdamW 1e-4 at the head and 0.7 times as much each layer before: ViTDet's
# decays.
_base_ = 'adamw_1x.py'
optim_wrapper = dict(
    optimizer=dict(weight_decay=0.1),
    constructor='mmposenc.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(_delete_=True, layer_decay_rate=0.7))
