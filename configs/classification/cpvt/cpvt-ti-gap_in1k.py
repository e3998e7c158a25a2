# CPVT-Ti-GAP: no class token, the mean of the patches.
# CPVT (ICLR 2023), number not checked. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-gap_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(pool='gap'))
