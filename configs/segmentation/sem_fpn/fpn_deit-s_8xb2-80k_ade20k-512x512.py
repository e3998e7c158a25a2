# Semantic FPN on DeiT-S with its learned table, resized to the crop's 32x32 patches.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_deit-s_8xb2-80k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/sem_fpn_deit.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/adamw_seg_80k.py']
train_dataloader = dict(batch_size=2)
model = dict(backbone=dict(
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
    init_cfg=dict(
        type='Pretrained',
        checkpoint='https://dl.fbaipublicfiles.com/deit/deit_small_patch16_224-cd65a155.pth')))
