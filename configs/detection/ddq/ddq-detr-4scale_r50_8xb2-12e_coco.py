# DDQ DETR on ResNet-50, four levels, 900 queries, sines and cosines in the encoder.
# Recipe: mmdet's DDQ DETR, 12 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py 8
_base_ = [
    '../../_base_/models/dino_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/dino_12e.py', '../../_base_/default_runtime.py']

# The schedule of DDQ DETR in mmdet: DINO's at twice the rate, with a weight decay of 0.05 and 2,000
# steps of warm-up.
optim_wrapper = dict(optimizer=dict(lr=0.0002, weight_decay=0.05))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.0001, by_epoch=False, begin=0, end=2000),
    dict(type='MultiStepLR', begin=0, end=12, by_epoch=True, milestones=[11], gamma=0.1)]

model = dict(
    type='mmposenc.DDQDETR',
    dense_topk_ratio=1.5,
    dqs_cfg=dict(type='nms', iou_threshold=0.8),
    bbox_head=dict(type='DDQDETRHead'))
train_dataloader = dict(dataset=dict(filter_cfg=dict(filter_empty_gt=False)))
