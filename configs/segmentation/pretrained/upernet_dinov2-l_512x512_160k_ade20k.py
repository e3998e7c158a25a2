# UperNet on DINOv2 ViT-L, all of it trained.
# Recipe: BEiT's segmentation release at 512, 160k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/upernet_dinov2-l_512x512_160k_ade20k.py 8
_base_ = [
    '../../_base_/models/upernet_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/layer-decay_seg_160k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(
        arch='dinov2-large', out_indices=(4, 11, 17, 23),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vitl14/'
            'dinov2_vitl14_pretrain.pth')),
    neck=dict(embed_dim=1024),
    decode_head=dict(in_channels=[1024, 1024, 1024, 1024], channels=1024),
    auxiliary_head=dict(in_channels=1024))
