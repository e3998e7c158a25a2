# Semantic FPN on Swin-T with its table of biases.
# Recipe: PVT's segmentation release, 40k steps of 32 images; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/sem_fpn_swin-t_512x512_40k_ade20k.py 8
_base_ = [
    '../../_base_/models/sem_fpn_swin.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/adamw_seg_40k.py']
model = dict(backbone=dict(init_cfg=dict(
    type='Pretrained',
    checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
    'swin_tiny_patch4_window7_224.pth')))
