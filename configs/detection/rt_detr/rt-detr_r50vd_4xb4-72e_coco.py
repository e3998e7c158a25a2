# RT-DETR on ResNet-50-vd, sines and cosines in the neck.
# Recipe: the release's, 72 epochs, 16 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/rt_detr/rt-detr_r50vd_4xb4-72e_coco.py 4
_base_ = [
    '../../_base_/models/rt-detr_r50vd.py', '../../_base_/datasets/coco_detection_640.py',
    '../../_base_/schedules/rt-detr_72e.py', '../../_base_/default_runtime.py']
