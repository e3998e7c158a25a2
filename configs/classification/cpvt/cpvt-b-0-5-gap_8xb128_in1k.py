# CPVT-B(0-5) with the mean of the patches instead of a class token.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-b-0-5-gap_8xb128_in1k.py 8
_base_ = 'cpvt-b-0-5_8xb128_in1k.py'
model = dict(backbone=dict(pool='gap'))
