# Semantic FPN on Swin-T with its table of biases.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_swin-t_8xb2-80k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/sem_fpn_pvt.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/adamw_seg_80k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', drop_path_rate=0.2, mask_padding=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
            'swin_tiny_patch4_window7_224.pth')),
    neck=dict(in_channels=[96, 192, 384, 768]))
