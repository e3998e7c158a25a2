# PVT-small with PEGs instead of the tables and the mean of the tokens instead of a class token:
# PCPVT.
# CPVT (ICLR 2023), PVT: number not checked; 24,106,216 parameters. Twins (NeurIPS 2021), Table 1,
# PCPVT-S: top-1 81.2. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-s-peg-gap_in1k.py 8
_base_ = 'pvt-s-peg_in1k.py'
model = dict(backbone=dict(pool='gap'))
