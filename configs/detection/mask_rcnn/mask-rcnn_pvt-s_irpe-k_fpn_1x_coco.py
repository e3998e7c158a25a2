# PVT-small with iRPE on keys beside its position tables: product, contextual, shared by the heads.
# Recipe: PVT's detection release, 1x; starts from PVT's classifier, which has no iRPE.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask_rcnn/mask-rcnn_pvt-s_irpe-k_fpn_1x_coco.py 8
_base_ = 'mask-rcnn_pvt-s_fpn_1x_coco.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'), init_cfg=dict(strict=False)))
