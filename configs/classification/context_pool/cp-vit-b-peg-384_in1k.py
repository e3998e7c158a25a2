# ViT-B/16 at 384 with a PEG and ContextPool after block 0, no table.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b-peg-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.PEG'), dict(type='mmposenc.ContextPool')]))
