# DINO on ResNet-50, four levels, sines and cosines in the encoder.
# Recipe: mmdet's DINO, 12 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/dino/dino-4scale_r50_8xb2-12e_coco.py 8
_base_ = [
    '../../_base_/models/dino_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/dino_12e.py', '../../_base_/default_runtime.py']
model = dict(decoder=dict(coordinate_feats=128))  # as published; mmdet 3.5 has 256
train_dataloader = dict(dataset=dict(filter_cfg=dict(filter_empty_gt=False)))
