# CPVT-Ti with its PEG after block 10 (position 10).
# CPVT (ICLR 2023), ablation of the position: number not checked. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti-pos10_in1k.py 8
_base_ = 'cpvt-ti_in1k.py'
model = dict(backbone=dict(positions=(10,)))
