# PVT-tiny with a PEG after the first block of every stage.
# Recipe: PVT's detection release, 1x; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
# CHECKPOINT is a classifier with a class token and PEGs. None was released: train one, or start
# from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh configs/detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'retinanet_pvt-t_fpn_1x_coco.py'
model = dict(backbone=dict(
    pos_encoding=dict(_delete_=True, type='mmposenc.PEG'),
    init_cfg=None))
