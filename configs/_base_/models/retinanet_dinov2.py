# RetinaNet on DINOv2's ViT-S/14: its last map becomes a pyramid of strides 7 to 112 (ViTDet's).
_base_ = 'retinanet_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov2-small', out_indices=(11,),
        drop_path_rate=0.1, mask_padding=True),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=256,
        scales=(2, 1, 0.5), num_outs=5),
    bbox_head=dict(anchor_generator=dict(strides=[7, 14, 28, 56, 112])))
