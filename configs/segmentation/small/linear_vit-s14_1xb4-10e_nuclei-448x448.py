# Nuclei with a pretrained backbone: a linear head on a frozen ViT-S/14, on tiles enlarged 3.5
# times, in which a patch of 14 pixels is 4 of the image's.
#
#     mmposenc prepare pretrained
_base_ = [
    '../../_base_/models/linear_vit-s14.py', '../../_base_/datasets/nuclei_segmentation.py',
    '../../_base_/schedules/adamw_seg_quick.py', '../../_base_/default_runtime.py']
model = dict(
    data_preprocessor=dict(mean=[30.0, 30.0, 30.0], std=[25.0, 25.0, 25.0]),  # of dark images
    decode_head=dict(num_classes=2))

train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='RandomResize', scale=(448, 448), ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(448, 448)),
    dict(
        type='RandomFlip',
        prob=[0.25, 0.25, 0.25],
        direction=['horizontal', 'vertical', 'diagonal']),
    dict(type='PackSegInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=(448, 448), keep_ratio=True),
    dict(type='mmposenc.LoadSegAnnotations'),
    dict(type='PackSegInputs')]
train_dataloader = dict(dataset=dict(times=4, dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

optim_wrapper = dict(optimizer=dict(lr=0.005))
