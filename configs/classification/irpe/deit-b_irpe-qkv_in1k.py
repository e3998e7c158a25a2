# DeiT-B with iRPE on queries, keys and values: Product, contextual, shared, 50 buckets.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-b_irpe-qkv_in1k.py 8
_base_ = '../deit/deit-b_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='qkv')))
