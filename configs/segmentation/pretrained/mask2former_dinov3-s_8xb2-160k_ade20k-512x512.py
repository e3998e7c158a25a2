# Mask2Former on DINOv3 ViT-S, whose last map becomes ViTDet's pyramid of strides 4 to 32. All of it
# is trained.
# Recipe: Mask2Former's, 160k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/mask2former_dinov3-s_8xb2-160k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/mask2former_r50_seg.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/mask2former_160k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov3-small', patch_size=16,
        out_indices=(11,), drop_path_rate=0.1, mask_padding=True),
    neck=dict(
        type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=256, num_outs=4),
    decode_head=dict(in_channels=[256, 256, 256, 256]),
    test_cfg=dict(_delete_=True, mode='slide', crop_size=(512, 512), stride=(341, 341)))
