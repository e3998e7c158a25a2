# COCO with the sizes of the Twins release's 3x: as DETR's, but what is cropped has a longer side of
# at most 1333, too.
_base_ = 'coco_detection_detr.py'

train_pipeline = _base_.train_pipeline
train_pipeline[3]['transforms'][1][0]['scales'] = [(400, 1333), (500, 1333), (600, 1333)]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
