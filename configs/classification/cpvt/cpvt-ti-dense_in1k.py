# CPVT-Ti whose PEG is a full 3x3 convolution over all channels.
# CPVT (ICLR 2023), number not checked. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-dense_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(conv='dense')))
