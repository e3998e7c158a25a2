# The same on parts of pictures: tested on whole pictures, which show four times as much. With
# model.test_cfg.mode=slide it is tested on four tiles of the training size, of the same pixels.
_base_ = 'linear_vit-s14-tuned_1xb4-10e_camvid-252x336.py'
model = dict(test_cfg=dict(crop_size=(252, 336), stride=(252, 336)))
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = test_pipeline[1]['scale'] = (672, 504)
train_pipeline.insert(3, dict(type='RandomCrop', crop_size=(252, 336)))
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
