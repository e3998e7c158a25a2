# Mask2Former on DINOv2's ViT-S/14, whose last map becomes ViTDet's pyramid. Strides are relative:
# with patches of 14 pixels they are 3.5 to 28.
_base_ = 'mask2former_r50_seg.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov2-small', out_indices=(11,),
        drop_path_rate=0.1, mask_padding=True),
    neck=dict(
        type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=256, num_outs=4),
    decode_head=dict(in_channels=[256, 256, 256, 256]),
    test_cfg=dict(_delete_=True, mode='slide', crop_size=(512, 512), stride=(341, 341)))
