# Semantic FPN on DeiT-S with its learned table, resized to the crop's 32x32 patches. Maps of four
# blocks, all of stride 16, become a pyramid of strides 4 to 32 before the FPN (mmseg's neck for
# plain transformers).
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_deit-s_8xb2-80k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/sem_fpn_pvt.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/adamw_seg_80k.py']
train_dataloader = dict(batch_size=2)
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.DeiT', arch='small', img_size=512, pool='cls',
        out_indices=(2, 5, 8, 11), drop_path_rate=0.1, mask_padding=True,
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/deit/deit_small_patch16_224-cd65a155.pth')),
    neck=[
        dict(type='Feature2Pyramid', embed_dim=384, rescales=[4, 2, 1, 0.5], norm_cfg=norm_cfg),
        dict(type='FPN', in_channels=[384, 384, 384, 384], out_channels=256, num_outs=4)])
