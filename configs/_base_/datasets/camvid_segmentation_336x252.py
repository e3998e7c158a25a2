# CamVid for patches of 14 pixels: 24x18 of them.
_base_ = 'camvid_segmentation.py'

scale = (336, 252)
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = test_pipeline[1]['scale'] = scale
del train_pipeline[4]  # colours stay as they are
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
