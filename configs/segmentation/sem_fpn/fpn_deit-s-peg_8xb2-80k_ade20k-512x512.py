# Semantic FPN on CPVT-S: DeiT-S with one PEG, after block 0, instead of the table.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is a classifier of configs/classification/cpvt/cpvt-s_8xb128_in1k.py. None was
# released: train one, or start from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_deit-s-peg_8xb2-80k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'fpn_deit-s_8xb2-80k_ade20k-512x512.py'
model = dict(backbone=dict(
    pos_encoding=dict(_delete_=True, type='mmposenc.PEG', bias=False), init_cfg=None))
