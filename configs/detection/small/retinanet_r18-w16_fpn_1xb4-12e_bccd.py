# The quickstart's RetinaNet on a quarter of a ResNet-18 whose BatchNorms train, on blood cells,
# from random weights: what padding does behind a ResNet (docs/padding.md).
#
#     python tools/train.py configs/detection/small/retinanet_r18-w16_fpn_1xb4-12e_bccd.py
_base_ = 'retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py'
model = dict(
    backbone=dict(
        _delete_=True, type='ResNet', depth=18, base_channels=16, stem_channels=16,
        norm_eval=False),
    neck=dict(in_channels=[16, 32, 64, 128]))
