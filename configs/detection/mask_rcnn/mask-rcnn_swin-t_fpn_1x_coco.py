# Mask R-CNN, mmdet's, on Swin-T with its table of biases.
# Recipe: PVT's 1x with the weight decay of mmdet's Swin; decays neither norms nor window biases.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask_rcnn/mask-rcnn_swin-t_fpn_1x_coco.py 8
_base_ = [
    '../../_base_/models/mask-rcnn_pvt.py', '../../_base_/models/swin-t.py',
    '../../_base_/datasets/coco_instance.py',
    '../../_base_/schedules/adamw_1x.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(_base_.swin_t, _delete_=True),
    neck=dict(in_channels=[96, 192, 384, 768]))
optim_wrapper = dict(optimizer=dict(weight_decay=0.05))
