# As imagenet.py, at 256 x 256: images are resized so that the shorter side is 292 and cropped.
_base_ = 'imagenet.py'
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[1]['scale'] = 256
test_pipeline[1]['scale'], test_pipeline[2]['crop_size'] = 292, 256
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
