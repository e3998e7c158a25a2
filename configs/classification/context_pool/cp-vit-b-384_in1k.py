# CP-ViT-B/16 at 384: ViT-B with ContextPool after block 0. The paper's parameters leave room for
# one predictor only (1.3 M); one after every block is cp-vit-b-every-384_in1k.py.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool')]))
