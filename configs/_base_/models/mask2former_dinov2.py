# Mask2Former on DINOv2's ViT-S, whose last map becomes ViTDet's pyramid of strides 4 to 32: patches
# of 14 pixels are resized to 16 when the file is loaded.
_base_ = 'mask2former_r50_seg.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov2-small', patch_size=16,
        out_indices=(11,), drop_path_rate=0.1, mask_padding=True),
    neck=dict(
        type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=256, num_outs=4),
    decode_head=dict(in_channels=[256, 256, 256, 256]),
    test_cfg=dict(_delete_=True, mode='slide', crop_size=(512, 512), stride=(341, 341)))
