# COCO with masks and large-scale jitter, tested at a longer side of 1024 as well (ViTDet).
_base_ = 'coco_instance_lsj.py'

test_pipeline = _base_.test_pipeline
test_pipeline[1]['scale'] = (1024, 1024)
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
