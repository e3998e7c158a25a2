# Semantic FPN on PVT-tiny with a PEG after the first block of every stage, pre-trained with
# average pooling.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor
# encodings.
# Reference: metafile.yml; not trained here.
#
# No class token is in a segmentor, so this differs from the class-token model only in the
# classifier whose weights it starts from. None was released for this size: train one, or start
# from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/sem_fpn_pvt-t-peg-gap_512x512_80k_ade20k.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'sem_fpn_pvt-t-peg_512x512_80k_ade20k.py'
