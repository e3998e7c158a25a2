# A small RT-DETR on tree crowns, from random weights: sines and cosines in the neck.
#
#     python tools/train.py configs/detection/small/rt-detr_r18vd-w16_1xb4-50e_trees.py
_base_ = [
    '../../_base_/models/rt-detr_r18vd-w16.py', '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(dataset=dict(times=5))  # 140 steps an epoch, 7,000 in all
