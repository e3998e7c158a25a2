# A small Deformable DETR on blood cells, from random weights: sines and cosines in the encoder.
# The first 18 of 50 epochs gave AP 0.281, AP50 0.536 (docs/results_detr.md).
#
#     python tools/train.py configs/detection/small/deformable-detr_r18-w16_bccd.py
_base_ = [
    '../../_base_/models/deformable-detr_r18-w16.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(dataset=dict(times=1))
