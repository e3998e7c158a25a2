# Semantic FPN on Swin-T with iRPE on queries, keys and values inside the windows instead of its
# biases: product, contextual, shared.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is a classifier of configs/classification/swin/swin-t_irpe-qkv_8xb128_in1k.py. None was
# released: train one, or start from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_swin-t_irpe-qkv_8xb2-80k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'fpn_swin-t_8xb2-80k_ade20k-512x512.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='qkv'),
    init_cfg=None))
