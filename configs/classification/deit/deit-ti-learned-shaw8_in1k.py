# DeiT-Ti with a learned table and Shaw's relative encoding on keys, K = 8, of each block its own.
# CPVT's row of a table with RPE shares one relative encoding between all blocks, for which there is
# no option yet.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-ti-learned-shaw8_in1k.py 8
_base_ = 'deit-ti_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.ShawRPE', max_offset=8)))
