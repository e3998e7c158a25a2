# DeiT-S with a PEG after the first block (CPVT-S-GAP) instead of the table and class token.
# Recipe: PVT's detection release, 1x, with the weight decay of ViTDet; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is a classifier of configs/classification/cpvt/cpvt-s-gap_8xb128_in1k.py. None was
# released: train one, or start from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/detection/retinanet/retinanet_deit-s-peg_sfp_1x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'retinanet_deit-s_sfp_1x_coco.py'
model = dict(backbone=dict(
    pool='gap', pos_encoding=dict(_delete_=True, type='mmposenc.PEG'), init_cfg=None))
