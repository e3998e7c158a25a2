# PVT-tiny with a learned position table in every stage.
# Recipe: PVT's detection release, 1x; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask_rcnn/mask-rcnn_pvt-t_fpn_1x_coco.py 8
_base_ = [
    '../../_base_/models/mask-rcnn_pvt.py',
    '../../_base_/datasets/coco_instance.py',
    '../../_base_/schedules/adamw_1x.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(init_cfg=dict(
    type='Pretrained',
    checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth')))
