# Semantic FPN on PVT-tiny with a PEG after the first block of every stage.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor
# encodings.
# Reference: metafile.yml; not trained here.
#
# CHECKPOINT is a classifier with a class token and PEGs. None was released: train one, or start
# from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_pvt-t-peg_8xb2-80k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'fpn_pvt-t_8xb2-80k_ade20k-512x512.py'
model = dict(backbone=dict(
    pos_encoding=dict(_delete_=True, type='mmposenc.PEG'),
    init_cfg=None))
