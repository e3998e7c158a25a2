# RT-DETR on a frozen, pretrained backbone: tree crowns on tiles of 448x448 pixels.
#
#     mmposenc prepare pretrained
_base_ = [
    '../../_base_/models/rt-detr_r18vd-w16.py', '../../_base_/datasets/trees_detection_448.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']

# Maps of three blocks become levels of strides 14, 28 and 56, which the hybrid encoder fuses.
model = dict(
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], pad_size_divisor=28),
    backbone=dict(
        _delete_=True,
        type='mmposenc.ViT',
        arch='dinov2-small',
        out_indices=(5, 8, 11),
        final_norm=False,  # the neck norms every map
        frozen_stages=12,
        mask_padding=True,
        init_cfg=dict(type='Pretrained', checkpoint='data/pretrained/vit-s14.safetensors')),
    neck=[
        dict(
            type='mmposenc.ConcatPyramid', in_channels=[384, 384, 384], out_channels=96,
            scales=(1, 0.5), num_outs=3),
        {**_base_.model.neck, 'in_channels': [96, 96, 96]}])

max_epochs = 10
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
