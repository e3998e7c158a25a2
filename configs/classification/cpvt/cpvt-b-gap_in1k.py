# CPVT-B-GAP: no class token, the mean of the patches.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-b-gap_in1k.py 8
_base_ = 'cpvt-b_in1k.py'
model = dict(backbone=dict(pool='gap'))
