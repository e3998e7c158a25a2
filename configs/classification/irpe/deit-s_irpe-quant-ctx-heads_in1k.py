# DeiT-S with iRPE on keys: Quantization, contextual mode, a table for each head. 51 buckets in
# use with a class token, the release's ratio.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/irpe/deit-s_irpe-quant-ctx-heads_in1k.py 8
_base_ = '../deit/deit-s_in1k.py'
model = dict(backbone=dict(rel_pos_encoding=dict(
    type='mmposenc.IRPE', method='quantization', shared_heads=False, ratio=33)))
