# Conditional DETR on ResNet-50, sines and cosines in the encoder.
# Recipe: mmdet's Conditional DETR, 50 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/conditional_detr/conditional-detr_r50_8xb2-50e_coco.py 8
_base_ = [
    '../../_base_/models/conditional-detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/dab-detr_50e.py', '../../_base_/default_runtime.py']
