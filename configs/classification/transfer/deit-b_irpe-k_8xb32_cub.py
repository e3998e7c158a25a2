# DeiT-B with iRPE on keys, pretrained on ImageNet, on CUB-200-2011.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/transfer/deit-b_irpe-k_8xb32_cub.py 8
_base_ = 'deit-b_8xb32_cub.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE'),
    init_cfg=dict(
        checkpoint='https://github.com/wkcn/iRPE-model-zoo/releases/download/1.0/'
                   'deit_base_patch16_224_ctx_product_50_shared_k.pth')))
