# BCCD: red and white blood cells and platelets, 640x480, in COCO's format in data/bccd: images/,
# annotations/train.json and annotations/val.json.
_base_ = 'trees_detection.py'
data_root = 'data/bccd/'
metainfo = dict(
    classes=('RBC', 'WBC', 'Platelets'), palette=[(220, 60, 60), (60, 60, 220), (60, 160, 60)])

# At half the size the cells are as wide as the tree crowns, 20 to 110 pixels; no crops.
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].update(scale=(320, 240), ratio_range=(0.8, 1.25))
del train_pipeline[3]
test_pipeline[1]['scale'] = (320, 240)

train_dataloader = dict(dataset=dict(times=2, dataset=dict(
    data_root=data_root, data_prefix=dict(img='images/'), metainfo=metainfo,
    pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(
    data_root=data_root, data_prefix=dict(img='images/'), metainfo=metainfo,
    pipeline=test_pipeline))
test_dataloader = val_dataloader

val_evaluator = dict(ann_file=data_root + 'annotations/val.json', classwise=True)
test_evaluator = val_evaluator
