# DeiT-S with iRPE on keys beside its table; starts from iRPE's release.
# Recipe: PVT's detection release, 1x, with the weight decay of ViTDet; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/retinanet/retinanet_deit-s_irpe-k_sfp_1x_coco.py 8
_base_ = 'retinanet_deit-s_sfp_1x_coco.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k'),
    init_cfg=dict(checkpoint='https://github.com/wkcn/iRPE-model-zoo/releases/download/1.0/'
                  'deit_small_patch16_224_ctx_product_50_shared_k.pth')))
