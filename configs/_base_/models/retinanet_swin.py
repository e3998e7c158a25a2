# RetinaNet on Swin-T. The norm of the first stage's map, which RetinaNet does not take, would get
# no
# gradient: that map is left out.
_base_ = 'retinanet_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', drop_path_rate=0.2, mask_padding=True,
        out_indices=(1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
            'swin_tiny_patch4_window7_224.pth')),
    neck=dict(in_channels=[192, 384, 768], start_level=0))
