# PVT-tiny with a learned position table in every stage.
# Recipe: sizes of PVT's 3x, weight decay and steps of the Twins release's 3x.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/pvt/retinanet_pvt-t_fpn_ms-640-800-3x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_pvt.py',
    '../../_base_/datasets/coco_detection_ms-640-800.py',
    '../../_base_/schedules/adamw_3x.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(init_cfg=dict(
    type='Pretrained',
    checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth')))
