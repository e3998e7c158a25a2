# A convolutional head on four blocks of a frozen DINOv3 ViT-B.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/fcn_dinov3-b_512x512_40k_ade20k.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/fcn_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/linear_seg_40k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(arch='dinov3-base'),
    neck=dict(in_channels=[768, 768, 768, 768]),
    decode_head=dict(in_channels=3072))
