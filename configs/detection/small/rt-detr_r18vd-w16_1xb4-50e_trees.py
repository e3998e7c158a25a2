# A small RT-DETR on tree crowns, from random weights: sines and cosines in the neck.
# Boxes are shares of the image, so images of training are as large as those of the test.
#
#     python tools/train.py configs/detection/small/rt-detr_r18vd-w16_1xb4-50e_trees.py
_base_ = [
    '../../_base_/models/rt-detr_r18vd-w16.py', '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2]['scale'] = test_pipeline[1]['scale'] = (320, 320)
train_pipeline[2]['ratio_range'] = (1.0, 1.5)
# 140 steps an epoch, 7,000 in all.
train_dataloader = dict(dataset=dict(times=5, dataset=dict(pipeline=train_pipeline)))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
