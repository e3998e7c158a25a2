# A small DETR on blood cells, from random weights: sines and cosines in the encoder. Not trained:
# its question, none and iRPE in the encoder, takes hours on a CPU.
#
#     mmposenc compare configs/detection/small/detr_r18-w16_bccd.py \
#         --encodings sincos none irpe-k sincos+irpe-k --out work_dirs/detr
_base_ = [
    '../../_base_/models/detr_r18-w16.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(dataset=dict(times=1))
