# ViT-B/16 at 224 with a PEG after block 0 and ContextPool after every block but the last, no table.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b-peg-224_in1k.py 8
_base_ = 'vit-b-224_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.PEG'),
    dict(type='mmposenc.ContextPool', default_positions='every', hidden_dims=26)]))
