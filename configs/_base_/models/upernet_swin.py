# UperNet on Swin-T.
_base_ = 'upernet_pvt.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', drop_path_rate=0.3, mask_padding=True),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384))
