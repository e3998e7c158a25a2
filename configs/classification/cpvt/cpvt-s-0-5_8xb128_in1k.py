# CPVT-S(0-5): a PEG after each of blocks 0 to 4.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-s-0-5_8xb128_in1k.py 8
_base_ = 'cpvt-s_8xb128_in1k.py'
model = dict(backbone=dict(positions=(0, 1, 2, 3, 4)))
