# Swin-T: what CP-Swin-T is compared with.
# Recipe: PVT's detection release, 1x; starts from Swin's classifier.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/context_pool/retinanet_swin-t_fpn_1x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_swin.py',
    '../../_base_/datasets/coco_detection.py',
    '../../_base_/schedules/adamw_1x.py', '../../_base_/default_runtime.py']
