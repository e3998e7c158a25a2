# Semantic FPN on PVT-micro with ContextPool after the first block of every stage, on CamVid.
#
#     python tools/train.py configs/segmentation/small/fpn_pvt-micro-cp_1xb4-10e_camvid-192x256.py
_base_ = 'fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py'
model = dict(backbone=dict(pos_encoding=dict(
    _delete_=True, type='mmposenc.ContextPool', default_positions=(0,))))
