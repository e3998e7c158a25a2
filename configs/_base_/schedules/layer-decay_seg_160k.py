# 160,000 steps of 16 images, AdamW 3e-5 at the head and 0.9 times as much each layer before: BEiT's
# segmentation release.
_base_ = 'adamw_seg_160k.py'
optim_wrapper = dict(
    optimizer=dict(lr=0.00003, weight_decay=0.05),
    constructor='mmposenc.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(_delete_=True, layer_decay_rate=0.9))
