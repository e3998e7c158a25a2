# Semantic FPN on DeiT-S with iRPE on keys beside its learned table: product, contextual, shared
# by the heads, 50 buckets.
# Recipe: PVT's segmentation release, 40k steps of 32 images; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/sem_fpn_deit-s_irpe-k_512x512_40k_ade20k.py 8
_base_ = 'sem_fpn_deit-s_512x512_40k_ade20k.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'),
    init_cfg=dict(checkpoint='https://github.com/wkcn/iRPE-model-zoo/releases/download/1.0/'
                  'deit_small_patch16_224_ctx_product_50_shared_k.pth')))
