# PVT-small with a learned position table in every stage.
# Recipe: sizes of PVT's 3x, weight decay and steps of the Twins release's 3x.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/pvt/retinanet_pvt-s_fpn_ms-640-800-3x_coco.py 8
_base_ = 'retinanet_pvt-t_fpn_ms-640-800-3x_coco.py'
model = dict(backbone=dict(
    arch='small',
    init_cfg=dict(
        checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth')))
