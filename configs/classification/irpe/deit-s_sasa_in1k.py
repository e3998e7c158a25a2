# DeiT-S with SASA's relative encoding: a vector of the row and one of the column offset, each for
# half of the channels.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_sasa_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.SASARPE', max_offset=13)))
