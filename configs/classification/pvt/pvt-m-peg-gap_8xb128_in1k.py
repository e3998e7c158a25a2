# PVT-medium with PEGs instead of the tables and the mean of the tokens instead of a class token:
# PCPVT.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/pvt/pvt-m-peg-gap_8xb128_in1k.py 8
_base_ = 'pvt-m_8xb128_in1k.py'
model = dict(backbone=dict(
    pool='gap', pos_encoding=dict(_delete_=True, type='mmposenc.PEG')))
