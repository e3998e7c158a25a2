# DeiT-Ti whose learned table enters only the queries and keys of the first block.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-ti-learned-qk_in1k.py 8
_base_ = 'deit-ti_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(apply_to='qk')))
