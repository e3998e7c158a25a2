# CPVT-Ti whose PEG pads nothing: 196 tokens become 144, and the border is gone.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-no-padding_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(padding='none')))
