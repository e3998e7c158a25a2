# PVT-small with iRPE on keys beside its position tables: product, contextual, shared by the heads.
# Recipe: the Twins release's 3x; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/mask_rcnn/mask-rcnn_pvt-s_irpe-k_fpn_ms-480-800-crop-3x_coco.py 8
_base_ = [
    '../../_base_/models/mask-rcnn_pvt.py',
    '../../_base_/datasets/coco_instance_ms-480-800-crop.py',
    '../../_base_/schedules/adamw_3x.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    arch='small', rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'),
    init_cfg=dict(
        type='Pretrained', strict=False,  # the classifier has no iRPE
        checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth')))
