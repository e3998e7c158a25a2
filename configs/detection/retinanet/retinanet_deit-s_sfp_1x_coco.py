# DeiT-S with its learned table, resized to each image.
# Recipe: PVT's detection release, 1x, with the weight decay of ViTDet; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/retinanet/retinanet_deit-s_sfp_1x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_deit.py',
    '../../_base_/datasets/coco_detection.py',
    '../../_base_/schedules/adamw_1x.py', '../../_base_/default_runtime.py']
optim_wrapper = dict(optimizer=dict(weight_decay=0.1))
