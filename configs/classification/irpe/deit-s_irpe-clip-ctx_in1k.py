# DeiT-S with iRPE on keys: Product, contextual, shared, offsets clipped instead of piecewise.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_irpe-clip-ctx_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', index='clip')))
