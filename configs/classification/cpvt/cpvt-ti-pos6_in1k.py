# CPVT-Ti with its PEG after block 6 (position 6).
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-pos6_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(positions=(6,)))
