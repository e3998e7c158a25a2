# A linear head on a frozen DINOv2 ViT-B/14, last block.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/linear_dinov2-b_512x512_40k_ade20k.py 8
_base_ = [
    '../../_base_/models/linear_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/linear_seg_40k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(
        arch='dinov2-base',
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vitb14/'
            'dinov2_vitb14_pretrain.pth')),
    neck=dict(in_channels=[768]),
    decode_head=dict(in_channels=768, channels=768))
