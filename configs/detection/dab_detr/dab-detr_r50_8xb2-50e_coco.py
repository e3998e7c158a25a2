# DAB-DETR on ResNet-50, scaled sines and cosines in the encoder.
# Recipe: mmdet's DAB-DETR, 50 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/dab_detr/dab-detr_r50_8xb2-50e_coco.py 8
_base_ = [
    '../../_base_/models/dab-detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/dab-detr_50e.py', '../../_base_/default_runtime.py']
