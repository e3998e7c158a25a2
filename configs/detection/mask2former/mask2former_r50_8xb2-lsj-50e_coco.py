# Mask2Former on ResNet-50 for instances, sines and cosines in the pixel decoder.
# Recipe: mmdet's Mask2Former, large-scale jitter, 368,750 steps of 16 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask2former/mask2former_r50_8xb2-lsj-50e_coco.py 8
_base_ = [
    '../../_base_/models/mask2former_r50.py', '../../_base_/datasets/coco_instance_lsj.py',
    '../../_base_/schedules/mask2former_50e.py']
