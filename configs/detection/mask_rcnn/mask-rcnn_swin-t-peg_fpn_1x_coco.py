# Swin-T with a PEG after the first block of each stage instead of its biases.
# Recipe: PVT's 1x with the weight decay of mmdet's Swin; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is a classifier of configs/classification/swin/swin-t-peg_8xb128_in1k.py. None was
# released: train one, or start from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh configs/detection/mask_rcnn/mask-rcnn_swin-t-peg_fpn_1x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'mask-rcnn_swin-t_fpn_1x_coco.py'
model = dict(backbone=dict(
    rel_pos_encoding=None, pos_encoding=dict(type='mmposenc.PEG'), init_cfg=None))
