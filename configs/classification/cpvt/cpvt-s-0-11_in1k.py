# CPVT-S(0-11): a PEG after each of blocks 0 to 10.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-s-0-11_in1k.py 8
_base_ = 'cpvt-s_in1k.py'
model = dict(backbone=dict(positions=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)))
