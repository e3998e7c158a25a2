# CP-Swin-T: ContextPool after the first block of every stage, over the whole map.
# It is the wide module: after every block, as in the paper, large maps make the means costly.
# Recipe: PVT's detection release, 1x; starts from Swin's classifier, which has no ContextPool.
# Beyond the paper, which has no detector; not trained here.
#
#     bash tools/dist_train.sh configs/detection/context_pool/retinanet_cp-swin-t_fpn_1x_coco.py 8
_base_ = 'retinanet_swin-t_fpn_1x_coco.py'
model = dict(backbone=dict(
    pos_encoding=dict(type='mmposenc.ContextPool', default_positions=(0,)),
    init_cfg=dict(strict=False)))
