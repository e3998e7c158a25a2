# RetinaNet on DINOv2's ViT-S: its last map becomes a pyramid of strides 8 to 128 (ViTDet's).
# Patches of 14 pixels are resized to 16 when the file is loaded.
_base_ = 'retinanet_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov2-small', patch_size=16,
        out_indices=(11,), drop_path_rate=0.1, mask_padding=True),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=256,
        scales=(2, 1, 0.5), num_outs=5))
