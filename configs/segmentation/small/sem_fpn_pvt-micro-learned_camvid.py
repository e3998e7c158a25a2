# Semantic FPN on PVT-micro with a learned table in every stage, on CamVid.
#
#     python tools/train.py configs/segmentation/small/sem_fpn_pvt-micro-learned_camvid.py
_base_ = 'sem_fpn_pvt-micro-none_camvid.py'
model = dict(backbone=dict(
    img_size=(192, 256),
    pos_encoding=dict(
        _delete_=True, type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')))
