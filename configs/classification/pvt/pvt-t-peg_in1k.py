# PVT-tiny with a PEG after the first block of every stage instead of the tables.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-t-peg_in1k.py 8
_base_ = 'pvt-t_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(_delete_=True, type='mmposenc.PEG')))
