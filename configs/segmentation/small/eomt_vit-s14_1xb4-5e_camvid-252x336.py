# EoMT on a pretrained ViT-S/14, on CamVid: 30 queries in the last 3 blocks, which are trained. The
# 9 blocks before them are frozen.
#
#     python tools/prepare_data.py pretrained
#     python tools/train.py configs/segmentation/small/eomt_vit-s14_1xb4-5e_camvid-252x336.py
_base_ = [
    '../../_base_/models/eomt_dinov3.py', '../../_base_/datasets/camvid_segmentation_336x252.py',
    '../../_base_/schedules/adamw_seg_quick.py', '../../_base_/default_runtime.py']
model = dict(
    data_preprocessor=dict(size=None, size_divisor=14, test_cfg=dict(size_divisor=14)),
    backbone=dict(
        arch='dinov2-small',
        num_classes=11,
        num_queries=30,
        frozen_stages=9,
        init_cfg=dict(type='Pretrained', checkpoint='data/pretrained/vit-s14.safetensors')),
    # Masks have a cell for 7x7 pixels: fewer points than in Mask2Former say as much.
    decode_head=dict(num_classes=11, num_queries=30, train_cfg=dict(num_points=2048)),
    test_cfg=dict(_delete_=True, mode='whole'))
# The blocks that are trained learn at a fifth of the rate of the queries and their predictor.
optim_wrapper = dict(
    optimizer=dict(lr=0.0005),
    paramwise_cfg=dict(custom_keys={'backbone.blocks': dict(lr_mult=0.2)}))
max_epochs = 5
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
custom_hooks = [*_base_.custom_hooks, dict(type='mmposenc.MaskAnnealingHook')]
