# Semantic FPN on PVT-micro with a PEG and then ContextPool after the first block of every stage, on
# CamVid.
#
#     python tools/train.py configs/segmentation/small/sem_fpn_pvt-micro-cp-peg_camvid.py
_base_ = 'sem_fpn_pvt-micro-none_camvid.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.PEG'), dict(type='mmposenc.ContextPool')]))
