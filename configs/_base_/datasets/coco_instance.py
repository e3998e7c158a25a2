# COCO 2017 with masks.
_base_ = 'coco_detection.py'

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[1]['with_mask'] = test_pipeline[2]['with_mask'] = True
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator
