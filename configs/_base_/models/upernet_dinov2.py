# UperNet on DINOv2's ViT-S: four blocks, each normed by the model's last norm, become maps of
# strides 4 to 32. Patches of 14 pixels are resized to 16 when the file is loaded.
_base_ = 'upernet_pvt.py'
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov2-small', patch_size=16,
        out_indices=(2, 5, 8, 11), final_norm='every', drop_path_rate=0.1, mask_padding=True),
    neck=dict(
        _delete_=True, type='Feature2Pyramid', embed_dim=384, rescales=[4, 2, 1, 0.5],
        norm_cfg=norm_cfg),
    decode_head=dict(in_channels=[384, 384, 384, 384], channels=384),
    auxiliary_head=dict(in_channels=384),
    test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)))
