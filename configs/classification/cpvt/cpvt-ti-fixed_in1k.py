# CPVT-Ti whose PEG keeps its random initial weights.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-fixed_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(frozen=True)))
