# CPVT-Ti whose PEG is depthwise-separable: 3x3, then 1x1 over channels.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-separable_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(conv='separable')))
