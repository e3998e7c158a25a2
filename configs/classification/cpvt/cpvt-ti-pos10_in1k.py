# CPVT-Ti with its PEG after block 10 (position 10).
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-pos10_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(positions=(10,)))
