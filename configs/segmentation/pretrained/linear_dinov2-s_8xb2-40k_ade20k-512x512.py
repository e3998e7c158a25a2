# A linear head on a frozen DINOv2 ViT-S/14, last block.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/linear_dinov2-s_8xb2-40k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/linear_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/linear_seg_40k.py']
train_dataloader = dict(batch_size=2)
model = dict(backbone=dict(init_cfg=dict(
    type='Pretrained',
    checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vits14/dinov2_vits14_pretrain.pth')))
