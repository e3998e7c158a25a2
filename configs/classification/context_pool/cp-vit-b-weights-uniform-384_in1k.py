# Ablation of CP-ViT-B/16 at 384: no weights.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh \
#         configs/classification/context_pool/cp-vit-b-weights-uniform-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool', weights='uniform')]))
