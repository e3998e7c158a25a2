# CPVT-Ti whose PEG is a stack of twelve 1x1 convolutions: parameters without neighbours.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-stacked12-k1_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(num_layers=12, kernel_size=1)))
