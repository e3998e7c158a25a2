# CPVT-Ti whose PEG is a stack of four 3x3 convolutions, each with BatchNorm and ReLU.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-stacked4_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(num_layers=4, norm_act=True)))
