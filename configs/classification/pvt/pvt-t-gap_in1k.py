# PVT-tiny with the mean of the tokens instead of a class token.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-t-gap_in1k.py 8
_base_ = 'pvt-t_in1k.py'
model = dict(backbone=dict(pool='gap'))
