# CP-ViT-B/16 of 10 layers at 224: ContextPool after the first nine.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b-10-224_in1k.py 8
_base_ = 'vit-b-224_in1k.py'
model = dict(backbone=dict(num_layers=10, pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool', default_positions='every', hidden_dims=26)]))
