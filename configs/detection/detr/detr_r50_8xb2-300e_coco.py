# DETR on ResNet-50, sines and cosines: the baseline of the longer iRPE config.
# Recipe: DETR's, 300 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50_8xb2-300e_coco.py 8
_base_ = [
    '../../_base_/models/detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/detr_300e.py', '../../_base_/default_runtime.py']
