# ViTDet's Mask R-CNN on RoPE-ViT-S (Heo et al., ECCV 2024), at 1024x1024. In eight blocks cells
# attend in windows of 14x14, as in an image of pretraining; four blocks see the whole image.
# Recipe: ViTDet's; learned frequencies do not decay, as in RoPE-ViT's release.
# No number known to us from a paper; not trained here. More: docs/rope-vit.md.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/mask-rcnn_rope-vit-s_sfp_16xb4-lsj-100e_coco.py 16
_base_ = '../vitdet/mask-rcnn_vitdet-b_sfp_16xb4-lsj-100e_coco.py'
model = dict(
    backbone=dict(
        arch='rope-vit-small-mixed', pool=None, window_size=14, global_blocks=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='timm://vit_small_patch16_rope_mixed_224.naver_in1k')),
    neck=dict(in_channels=384))
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(_delete_=True)))
