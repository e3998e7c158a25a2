# PVT-tiny with a learned position table in every stage, pre-trained with average pooling.
# Recipe: PVT's detection release, 1x; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
# No class token is in a detector, so this differs from the class-token model only in the
# classifier whose weights it starts from. None was released: train one, or start from random
# weights by leaving the last two options out.
#
#     bash tools/dist_train.sh configs/detection/pvt/retinanet_pvt-t-gap_fpn_1x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'retinanet_pvt-t_fpn_1x_coco.py'
model = dict(backbone=dict(init_cfg=None))
