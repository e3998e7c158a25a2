# RF-DETR on a frozen, pretrained backbone, without windows, which it has not learned: tree crowns
# on tiles of 448x448 pixels.
#
#     mmposenc prepare pretrained
_base_ = [
    '../../_base_/models/rf-detr_nano.py', '../../_base_/datasets/trees_detection_448.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']

attention = dict(embed_dims=96, num_heads=6)
model = dict(
    num_queries=100,
    num_groups=5,
    data_preprocessor=dict(pad_size_divisor=14, batch_augments=None),
    backbone=dict(
        _delete_=True,
        type='mmposenc.ViT',
        arch='dinov2-small',
        out_indices=(2, 5, 8, 11),
        final_norm='every',
        frozen_stages=12,
        mask_padding=True,
        init_cfg=dict(type='Pretrained', checkpoint='data/pretrained/vit-s14.safetensors')),
    neck=dict(out_channels=96),
    decoder=dict(layer_cfg=dict(
        self_attn_cfg=attention, cross_attn_cfg={**attention, 'num_points': 4},
        ffn_cfg=dict(embed_dims=96, feedforward_channels=192))),
    bbox_head=dict(num_classes=1, embed_dims=96),
    test_cfg=dict(max_per_img=100))

max_epochs = 10
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
