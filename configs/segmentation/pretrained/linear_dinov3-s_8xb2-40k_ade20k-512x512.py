# A linear head on a frozen DINOv3 ViT-S/16, last block.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/linear_dinov3-s_8xb2-40k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/linear_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/linear_seg_40k.py']
train_dataloader = dict(batch_size=2)
model = dict(backbone=dict(arch='dinov3-small'))
