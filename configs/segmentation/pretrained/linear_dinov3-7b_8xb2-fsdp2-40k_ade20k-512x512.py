# A linear head on a frozen DINOv3 ViT-7B/16, whose matrices are stored in bfloat16 and spread over
# the processes (FSDP2): docs/scale.md has the sizes.
# Recipe: DINOv2's linear heads, 40k steps of 16 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/linear_dinov3-7b_8xb2-fsdp2-40k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'linear_dinov3-s_8xb2-40k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        arch='dinov3-7b', out_indices=(39,), frozen_stages=40, frozen_dtype='bfloat16'),
    neck=dict(in_channels=[4096]),
    decode_head=dict(in_channels=4096, channels=4096))
runner_type = 'mmposenc.FlexibleRunner'
strategy = dict(type='mmposenc.FSDP2Strategy')
