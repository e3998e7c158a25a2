# Semantic FPN on DeiT-S: maps of four blocks, all of stride 16, become a pyramid of strides 4 to 32
# (mmseg's neck for plain transformers) before the FPN.
_base_ = 'sem_fpn_pvt.py'
norm_cfg = dict(type='SyncBN', requires_grad=True)
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.DeiT', arch='small', img_size=512, pool='cls',
        out_indices=(2, 5, 8, 11), drop_path_rate=0.1, mask_padding=True),
    neck=[
        dict(type='Feature2Pyramid', embed_dim=384, rescales=[4, 2, 1, 0.5], norm_cfg=norm_cfg),
        dict(type='FPN', in_channels=[384, 384, 384, 384], out_channels=256, num_outs=4)])
