# PVT-small with the mean of the tokens instead of a class token.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-s-gap_in1k.py 8
_base_ = 'pvt-s_in1k.py'
model = dict(backbone=dict(pool='gap'))
