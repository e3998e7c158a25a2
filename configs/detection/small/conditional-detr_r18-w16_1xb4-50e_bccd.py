# A small Conditional DETR on blood cells, from random weights: sines and cosines in the encoder. It
# learns sooner than DETR, and its encoder attends as DETR's does.
#
#     mmposenc compare configs/detection/small/conditional-detr_r18-w16_1xb4-50e_bccd.py \
#         --encodings none irpe-k sincos --out work_dirs/detr
_base_ = [
    '../../_base_/models/conditional-detr_r18-w16.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(dataset=dict(times=1))
