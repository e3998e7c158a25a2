# CP-ViT-B/16 at 224: ViT-B with ContextPool of 26 hidden channels after every block but the last.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b_8xb128_in1k.py 8
_base_ = 'vit-b_8xb128_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool', default_positions='every', hidden_dims=26)]))
