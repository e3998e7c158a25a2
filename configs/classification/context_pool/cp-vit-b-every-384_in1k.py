# ViT-B/16 at 384 with ContextPool after every block but the last, as the paper's Figure 2 reads.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b-every-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool', default_positions=tuple(range(11)))]))
