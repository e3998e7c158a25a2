# Ablation of CP-ViT-B/16 at 224: weights and sizes by attention of one head of C / 4 channels.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh \
#         configs/classification/context_pool/cp-vit-b-predictor-attention-224_in1k.py 8
_base_ = 'vit-b-224_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool', default_positions='every', predictor='attention')]))
