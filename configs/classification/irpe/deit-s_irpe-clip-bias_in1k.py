# DeiT-S with iRPE on keys: Product, bias mode, shared, offsets clipped instead of piecewise.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_irpe-clip-bias_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.IRPE', index='clip', mode='bias')))
