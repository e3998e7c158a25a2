# A frozen, pretrained backbone on the quickstart's data: tree crowns on tiles enlarged 1.6 times,
# in which a patch of 14 pixels is 9 of the image's.
#
#     mmposenc prepare pretrained
_base_ = [
    '../../_base_/models/retinanet_pvt-micro-peg.py', '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']

# RetinaNet on a frozen ViT-S/14 in the layout of DINOv2: maps of three blocks, each normed,
# concatenated, become levels of strides 7, 14 and 28. 360 thousand parameters are trained.
# The weights: python tools/prepare_data.py pretrained, or any DINOv2 ViT-S file in their place.
model = dict(
    data_preprocessor=dict(pad_size_divisor=28),
    backbone=dict(
        _delete_=True,
        type='mmposenc.ViT',
        arch='dinov2-small',
        out_indices=(5, 8, 11),
        final_norm=False,  # the neck norms every map
        frozen_stages=12,
        mask_padding=True,
        init_cfg=dict(type='Pretrained', checkpoint='data/pretrained/vit-s14.safetensors')),
    neck=dict(
        _delete_=True,
        type='mmposenc.ConcatPyramid',
        in_channels=[384, 384, 384],
        out_channels=64,
        scales=(2, 1, 0.5)),
    bbox_head=dict(anchor_generator=dict(octave_base_scale=5, strides=[7, 14, 28])))

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = test_pipeline[1]['scale'] = (644, 644)
train_pipeline[3]['crop_size'] = (448, 448)
del train_pipeline[5]  # colours stay as they are
train_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

max_epochs = 10
train_cfg = dict(max_epochs=max_epochs, val_interval=max_epochs)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)
