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

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = train_pipeline[3]['crop_size'] = (448, 448)
del train_pipeline[5]  # colours stay as they are
test_pipeline.insert(1, dict(type='Resize', scale=(448, 448), keep_ratio=True))
train_dataloader = dict(dataset=dict(times=4, dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader

optim_wrapper = dict(optimizer=dict(lr=0.005))
