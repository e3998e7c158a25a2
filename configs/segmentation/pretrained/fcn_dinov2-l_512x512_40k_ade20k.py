# A convolutional head on four blocks of a frozen DINOv2 ViT-L.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/fcn_dinov2-l_512x512_40k_ade20k.py 8
_base_ = [
    '../../_base_/models/fcn_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/linear_seg_40k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(
        arch='dinov2-large', out_indices=(4, 11, 17, 23), frozen_stages=24,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vitl14/'
            'dinov2_vitl14_pretrain.pth')),
    neck=dict(in_channels=[1024, 1024, 1024, 1024]),
    decode_head=dict(in_channels=4096))
