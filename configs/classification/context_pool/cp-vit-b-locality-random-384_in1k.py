# Ablation of CP-ViT-B/16 at 384: 32 random tokens.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh \
#         configs/classification/context_pool/cp-vit-b-locality-random-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool', locality='random_sparse')]))
