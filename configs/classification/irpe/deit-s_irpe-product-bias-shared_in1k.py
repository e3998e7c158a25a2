# DeiT-S with iRPE on keys: Product, bias mode, shared by the heads. 50 buckets in use with a
# class token.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_irpe-product-bias-shared_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', mode='bias')))
