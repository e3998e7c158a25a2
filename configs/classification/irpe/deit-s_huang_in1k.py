# DeiT-S with Huang's relative encoding on queries and keys: Product, clipped, shared by the
# heads, 50 buckets.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_huang_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.HuangRPE', max_offset=3)))
