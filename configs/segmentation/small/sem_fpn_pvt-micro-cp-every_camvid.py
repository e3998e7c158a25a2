# Semantic FPN on PVT-micro with ContextPool of 4 hidden channels after every
# block but the last, on CamVid.
#
#     python tools/train.py configs/segmentation/small/sem_fpn_pvt-micro-cp-every_camvid.py
_base_ = 'sem_fpn_pvt-micro-none_camvid.py'
model = dict(backbone=dict(pos_encoding=dict(
    _delete_=True, type='mmposenc.ContextPool', default_positions='every', hidden_dims=4)))
