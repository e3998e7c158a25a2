# A frozen, pretrained backbone on the quickstart's data: tree crowns on tiles enlarged 1.6 times,
# in which a patch of 14 pixels is 9 of the image's.
#
#     mmposenc prepare pretrained
_base_ = [
    '../../_base_/models/retinanet_vit-s14_sfp.py', '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']

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
