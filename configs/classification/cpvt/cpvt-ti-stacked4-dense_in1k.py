# CPVT-Ti whose PEG is a stack of four 3x3 convolutions over all channels, each with BatchNorm and
# ReLU.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-stacked4-dense_in1k.py 8
_base_ = 'cpvt-ti-stacked4_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(conv='dense')))
