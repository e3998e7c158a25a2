# CPVT-S-GAP: no class token, the mean of the patches.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-s-gap_in1k.py 8
_base_ = 'cpvt-s_in1k.py'
model = dict(backbone=dict(pool='gap'))
