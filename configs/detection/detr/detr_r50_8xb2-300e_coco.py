# DETR on ResNet-50, sines and cosines: the baseline of the longer iRPE config.
# Recipe: DETR's, 300 epochs, a step after 200, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50_8xb2-300e_coco.py 8
_base_ = [
    '../../_base_/models/detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/detr_150e.py', '../../_base_/default_runtime.py']
max_epochs = 300
train_cfg = dict(max_epochs=max_epochs)
param_scheduler = [
    dict(type='MultiStepLR', begin=0, end=max_epochs, by_epoch=True, milestones=[200], gamma=0.1)]
