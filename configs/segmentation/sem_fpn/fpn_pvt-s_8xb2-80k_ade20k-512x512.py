# Semantic FPN on PVT-small with a learned position table in every stage.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/segmentation/sem_fpn/fpn_pvt-s_8xb2-80k_ade20k-512x512.py 8
_base_ = 'fpn_pvt-t_8xb2-80k_ade20k-512x512.py'
model = dict(backbone=dict(arch='small', init_cfg=dict(
    type='Pretrained',
    checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth')))
