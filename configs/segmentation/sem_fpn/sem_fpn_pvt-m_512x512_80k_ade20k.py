# Semantic FPN on PVT-medium with a learned position table in every stage.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/segmentation/sem_fpn/sem_fpn_pvt-m_512x512_80k_ade20k.py 8
_base_ = 'sem_fpn_pvt-t_512x512_80k_ade20k.py'
model = dict(backbone=dict(arch='medium', init_cfg=dict(
    type='Pretrained',
    checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_medium.pth')))
