# DeiT-S with the mean of the patches instead of a class token.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-s-gap_in1k.py 8
_base_ = 'deit-s_in1k.py'
model = dict(backbone=dict(pool='gap'))
