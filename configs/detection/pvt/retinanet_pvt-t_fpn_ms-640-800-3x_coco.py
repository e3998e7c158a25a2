# PVT-tiny with a learned position table in every stage.
# Recipe: sizes of PVT's 3x, weight decay and steps of the Twins release's 3x.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/pvt/retinanet_pvt-t_fpn_ms-640-800-3x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_pvt.py', '../../_base_/datasets/coco_detection.py',
    '../../_base_/schedules/adamw_3x.py', '../../_base_/default_runtime.py']

# Training images have a shorter side of 640 to 800 and a longer side of at most 1333, as in
# PVT's paper (the Twins release also crops, and goes down to 480).
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=[(1333, 640), (1333, 800)], keep_ratio=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
model = dict(backbone=dict(init_cfg=dict(
    type='Pretrained',
    checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth')))
