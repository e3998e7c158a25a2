# The same detector on tree crowns, with sines and cosines in the encoder.
#
#     python tools/train.py configs/detection/small/deformable-detr_r18-w16_1xb4-50e_trees.py
_base_ = [
    '../../_base_/models/deformable-detr_r18-w16.py', '../../_base_/datasets/trees_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
model = dict(bbox_head=dict(num_classes=1))
train_dataloader = dict(dataset=dict(times=5))  # 140 steps an epoch, 7,000 in all
