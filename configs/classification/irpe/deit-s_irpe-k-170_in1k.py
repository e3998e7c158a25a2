# DeiT-S with iRPE on keys: Product, contextual, shared, 170 buckets, all in use on 14 x 14
# patches.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_irpe-k-170_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', ratio=3.4)))
