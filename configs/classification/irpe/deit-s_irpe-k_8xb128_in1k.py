# DeiT-S with iRPE on keys: product, contextual, shared by the heads, 50 buckets; with the learned
# table.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_irpe-k_8xb128_in1k.py 8
_base_ = '../deit/deit-s_8xb128_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k')))
