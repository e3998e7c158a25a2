# Mask2Former on DINOv2 ViT-S, all of it trained.
# Recipe: Mask2Former's, 160k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/mask2former_dinov2-s_512x512_160k_ade20k.py 8
_base_ = [
    '../../_base_/models/mask2former_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/mask2former_160k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(
        arch='dinov2-small',
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vits14/'
            'dinov2_vits14_pretrain.pth')),
    neck=dict(in_channels=384))
