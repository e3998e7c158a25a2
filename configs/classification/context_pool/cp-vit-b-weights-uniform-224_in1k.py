# Ablation of CP-ViT-B/16 at 224: no weights, so half the hidden channels.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh \
#         configs/classification/context_pool/cp-vit-b-weights-uniform-224_in1k.py 8
_base_ = 'vit-b-224_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool',
         default_positions='every', hidden_dims=13, weights='uniform')]))
