# CPVT-Ti with four depthwise-separable PEGs, one behind the other, after block 0.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-4pegs-separable_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
peg = dict(type='mmposenc.PEG', conv='separable', bias=False)
model = dict(backbone=dict(pos_encoding=[peg, peg, peg, peg]))
