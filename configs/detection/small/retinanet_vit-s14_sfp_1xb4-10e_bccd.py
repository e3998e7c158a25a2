# The same on blood cells (data/bccd), at 448x336 pixels: 32x24 cells of the backbone.
_base_ = 'retinanet_vit-s14_sfp_1xb4-10e_trees.py'
data_root = 'data/bccd/'
metainfo = dict(
    classes=('RBC', 'WBC', 'Platelets'), palette=[(220, 60, 60), (60, 60, 220), (60, 160, 60)])
model = dict(bbox_head=dict(num_classes=3))

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = test_pipeline[1]['scale'] = (448, 336)
train_pipeline[2]['ratio_range'] = (1.0, 1.5)
train_pipeline[3]['crop_size'] = (336, 448)
train_dataloader = dict(dataset=dict(times=1, dataset=dict(
    data_root=data_root, data_prefix=dict(img='images/'), metainfo=metainfo,
    pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(
    data_root=data_root, data_prefix=dict(img='images/'), metainfo=metainfo,
    pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=data_root + 'annotations/val.json', classwise=True)
test_evaluator = val_evaluator
