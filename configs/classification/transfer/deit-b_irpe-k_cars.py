# DeiT-B with iRPE on keys, pretrained on ImageNet, on Stanford Cars.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/transfer/deit-b_irpe-k_cars.py 8
_base_ = 'deit-b_cars.py'
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE'),
    init_cfg=dict(
        checkpoint='https://github.com/wkcn/iRPE-model-zoo/releases/download/1.0/'
                   'deit_base_patch16_224_ctx_product_50_shared_k.pth')))
