# Semantic FPN on PVT-micro with ContextPool after the first block of every stage, on CamVid.
#
#     python tools/train.py configs/segmentation/small/sem_fpn_pvt-micro-cp_camvid.py
_base_ = 'sem_fpn_pvt-micro-none_camvid.py'
model = dict(backbone=dict(pos_encoding=dict(_delete_=True, type='mmposenc.ContextPool')))
