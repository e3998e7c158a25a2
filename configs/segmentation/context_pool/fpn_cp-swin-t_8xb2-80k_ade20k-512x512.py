# Semantic FPN on CP-Swin-T: ContextPool after the first block of every stage, over the whole map.
# It is the wide module: after every block, as in the paper, large maps make the means costly.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; starts from Swin's classifier, which
# has no ContextPool.
# Beyond the paper, which has no segmentor; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/context_pool/fpn_cp-swin-t_8xb2-80k_ade20k-512x512.py 8
_base_ = '../sem_fpn/fpn_swin-t_8xb2-80k_ade20k-512x512.py'
model = dict(backbone=dict(
    pos_encoding=dict(type='mmposenc.ContextPool', default_positions=(0,)),
    init_cfg=dict(strict=False)))
