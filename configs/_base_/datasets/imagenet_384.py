# As imagenet.py, at 384 x 384: images are resized so that the shorter side is 438 and cropped.
_base_ = 'imagenet.py'
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[1]['scale'] = 384
test_pipeline[1]['scale'], test_pipeline[2]['crop_size'] = 438, 384
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
