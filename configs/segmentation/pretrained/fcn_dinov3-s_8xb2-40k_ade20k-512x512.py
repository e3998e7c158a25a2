# A convolution of 3x3 and a linear layer on four normed blocks of a frozen DINOv3 ViT-S.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/fcn_dinov3-s_8xb2-40k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/linear_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/linear_seg_40k.py']
train_dataloader = dict(batch_size=2)
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    backbone=dict(arch='dinov3-small', out_indices=(2, 5, 8, 11)),
    neck=dict(in_channels=[384, 384, 384, 384]),
    decode_head=dict(
        in_channels=1536, channels=256, num_convs=1, dropout_ratio=0.1, norm_cfg=norm_cfg))
