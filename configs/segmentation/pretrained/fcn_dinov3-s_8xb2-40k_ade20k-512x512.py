# A convolutional head on four blocks of a frozen DINOv3 ViT-S.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/fcn_dinov3-s_8xb2-40k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/fcn_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/linear_seg_40k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(arch='dinov3-small'),
    neck=dict(in_channels=[384, 384, 384, 384]),
    decode_head=dict(in_channels=1536))
