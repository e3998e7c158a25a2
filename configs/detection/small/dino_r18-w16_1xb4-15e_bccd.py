# A small DINO on blood cells, from random weights: sines and cosines in the encoder.
#
#     python tools/train.py configs/detection/small/dino_r18-w16_1xb4-15e_bccd.py
_base_ = [
    '../../_base_/models/dino_r18-w16.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_small-detr_15e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(dataset=dict(times=1))
