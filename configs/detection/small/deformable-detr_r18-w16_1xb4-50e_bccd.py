# A small Deformable DETR on blood cells, from random weights: sines and cosines in the encoder.
# AP 0.342, AP50 0.628 with seed 0 (docs/results_detr.md).
#
#     python tools/train.py configs/detection/small/deformable-detr_r18-w16_1xb4-50e_bccd.py
_base_ = [
    '../../_base_/models/deformable-detr_r18-w16.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(dataset=dict(times=1))
