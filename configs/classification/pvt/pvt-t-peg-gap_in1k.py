# PVT-tiny with PEGs instead of the tables and the mean of the tokens instead of a class token:
# PCPVT.
# CPVT (ICLR 2023), pyramids: 3.1 points over PVT-tiny; 12,849,640 parameters. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-t-peg-gap_in1k.py 8
_base_ = 'pvt-t-peg_in1k.py'
model = dict(backbone=dict(pool='gap'))
