# Swin-T with its table of biases.
# Recipe: PVT's 1x with the weight decay of mmdet's Swin; decays neither norms nor window biases.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask_rcnn/mask-rcnn_swin-t_fpn_1x_coco.py 8
_base_ = [
    '../../_base_/models/mask-rcnn_swin.py',
    '../../_base_/datasets/coco_instance.py',
    '../../_base_/schedules/adamw_1x.py', '../../_base_/default_runtime.py']
optim_wrapper = dict(optimizer=dict(weight_decay=0.05))
