# DeiT-S with Transformer-XL's relative encoding, of the row and of the column offset. (The
# paper's form, products of clipped offsets, takes more multiplications.)
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_transformer-xl_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(type='mmposenc.TransformerXLRPE')))
