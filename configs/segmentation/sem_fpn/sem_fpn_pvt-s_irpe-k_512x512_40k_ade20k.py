# Semantic FPN on PVT-small with iRPE on keys beside its position tables: product, contextual,
# shared by the heads. Starts from PVT's classifier, which has no iRPE.
# Recipe: PVT's segmentation release, 40k steps of 32 images; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/sem_fpn_pvt-s_irpe-k_512x512_40k_ade20k.py 8
_base_ = 'sem_fpn_pvt-s_512x512_40k_ade20k.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'), init_cfg=dict(strict=False)))
