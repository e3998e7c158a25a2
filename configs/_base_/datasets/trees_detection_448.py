# Tree crowns on tiles of 448x448 pixels, for detectors whose boxes are shares of the image: images
# of training are as large as those of the test, and show crowns at least as large.
_base_ = 'trees_detection.py'

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = test_pipeline[1]['scale'] = (448, 448)
train_pipeline[2]['ratio_range'] = (1.0, 1.5)
train_pipeline[3]['crop_size'] = (448, 448)
del train_pipeline[5]  # colours stay as they are
train_dataloader = dict(dataset=dict(dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
