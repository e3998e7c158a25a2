# PVT-medium with a PEG after the first block of every stage, pre-trained with average pooling.
# Recipe: the Twins release's 3x; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
# CHECKPOINT is pcpvt_base.pth of the Twins release (github.com/Meituan-AutoML/Twins).
#
#     bash tools/dist_train.sh \
#         configs/detection/pvt/retinanet_pvt-m-peg-gap_fpn_ms-480-800-crop-3x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'retinanet_pvt-s-peg-gap_fpn_ms-480-800-crop-3x_coco.py'
model = dict(backbone=dict(arch='medium'))
