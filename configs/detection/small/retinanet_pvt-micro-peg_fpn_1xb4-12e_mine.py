# For boxes of your own: five shapes of anchors, from 9 times as wide as high to 9 times as high as
# wide, and sizes up to the whole picture, so that each box has an anchor that overlaps it.
#
#     mmposenc train mmposenc::retinanet-pvt-peg-mine --data data/mine
_base_ = 'retinanet_pvt-micro-peg_fpn_1xb4-12e_trees.py'
model = dict(
    neck=dict(num_outs=5, add_extra_convs='on_output'),
    bbox_head=dict(anchor_generator=dict(
        ratios=[1 / 9, 1 / 3, 1.0, 3.0, 9.0], octave_base_scale=2.5, strides=[8, 16, 32, 64, 128])))

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].update(scale=(640, 640), ratio_range=(0.75, 1.25))
train_pipeline[4] = dict(type='RandomFlip', prob=0.5)
del train_pipeline[3]  # no crops: an object may be as wide as the picture
test_pipeline[1]['scale'] = (640, 640)
data = dict(data_root='data/mine/')
train_dataloader = dict(dataset=dict(dataset=dict(
    ann_file='train.json', data_prefix=dict(img='train/'), pipeline=train_pipeline, **data)))
val_dataloader = dict(dataset=dict(
    ann_file='val.json', data_prefix=dict(img='val/'), pipeline=test_pipeline, **data))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='data/mine/val.json')
test_evaluator = val_evaluator
