# DeiT-Ti with a learned table in front of the first block and of each of the next five, beside
# CPVT's PEGs after blocks 0 to 4.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-ti-learned-first5_in1k.py 8
_base_ = 'deit-ti_in1k.py'
model = dict(backbone=dict(positions=(-1, 0, 1, 2, 3, 4)))
