# CPVT-Ti whose PEG is a stack of twelve 1x1 convolutions over all channels, each with
# BatchNorm and ReLU: parameters without neighbours. One skip leads around all of them; where the
# paper's skips lead is not said (its first version: "with skip connections").
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-stacked12-k1_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(
    conv='dense', bias=True, num_layers=12, kernel_size=1, norm_act=True)))
