# DeiT-S with iRPE on keys: Product, contextual, shared, 10 buckets, all in use on 14 x 14
# patches.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_irpe-k-10_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', ratio=0.5)))
