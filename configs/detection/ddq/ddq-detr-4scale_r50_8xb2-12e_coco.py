# DDQ DETR on ResNet-50, four levels, sines and cosines in the encoder.
# Recipe: mmdet's DDQ DETR, 12 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/ddq/ddq-detr-4scale_r50_8xb2-12e_coco.py 8
_base_ = [
    '../../_base_/models/ddq-detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/ddq-detr_12e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(dataset=dict(filter_cfg=dict(filter_empty_gt=False)))
