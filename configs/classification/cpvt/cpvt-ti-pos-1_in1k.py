# CPVT-Ti with its PEG before block 0 (position -1).
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-pos-1_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(positions=(-1,)))
