# DETR on ResNet-50, sines and cosines in encoder and decoder.
# Recipe: CPVT's first version: 50 epochs, 32 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50_8xb4-50e_coco.py 8
_base_ = [
    '../../_base_/models/detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/detr_50e.py', '../../_base_/default_runtime.py']
train_dataloader = dict(batch_size=4)
