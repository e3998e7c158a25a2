# DeiT-Ti with the mean of the patches instead of a class token.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-ti-gap_in1k.py 8
_base_ = 'deit-ti_in1k.py'
model = dict(backbone=dict(pool='gap'))
