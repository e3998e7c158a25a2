# Swin-T with iRPE on queries, keys and values inside the windows instead of its
# biases.
# Recipe: PVT's detection release, 1x; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is a classifier of configs/classification/swin/swin-t_irpe-qkv_8xb128_in1k.py. None was
# released: train one, or start from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/detection/retinanet/retinanet_swin-t_irpe-qkv_fpn_1x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = '../context_pool/retinanet_swin-t_fpn_1x_coco.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='qkv'),
    init_cfg=None))
