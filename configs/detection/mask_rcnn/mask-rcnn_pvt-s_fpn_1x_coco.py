# PVT-small with a learned position table in every stage.
# Recipe: PVT's detection release, 1x; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask_rcnn/mask-rcnn_pvt-s_fpn_1x_coco.py 8
_base_ = 'mask-rcnn_pvt-t_fpn_1x_coco.py'
model = dict(backbone=dict(
    arch='small',
    init_cfg=dict(
        checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth')))
