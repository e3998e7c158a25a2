# DeiT-micro with no position encoding, trained on digits of many sizes.
#
#     mmposenc compare configs/classification/small/deit-micro-none-scales_1xb32-40e_mnist5k.py \
#         --encodings none learned peg --out work_dirs/scales
_base_ = [
    '../../_base_/models/deit-micro.py', '../../_base_/datasets/mnist5k.py',
    '../../_base_/schedules/adamw_micro.py', '../../_base_/default_runtime.py']

# Digits in training are half to 1.4 times as large, which is as large as a digit (20 of 28 pixels)
# can be drawn without cutting it. Images keep their 32 pixels.
resize = dict(type='Resize', scale=32, interpolation='bicubic')
train_pipeline = [
    resize,
    dict(type='NumpyToPIL'),
    dict(type='torchvision/RandomAffine', degrees=10, translate=(0.1, 0.1), scale=(0.5, 1.4),
         interpolation='bilinear'),
    dict(type='PILToNumpy'),
    dict(type='PackInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
