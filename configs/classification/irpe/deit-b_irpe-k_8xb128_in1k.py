# DeiT-B with iRPE on keys: Product, contextual, shared, 50 buckets.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-b_irpe-k_8xb128_in1k.py 8
_base_ = '../deit/deit-b_8xb128_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE')))
