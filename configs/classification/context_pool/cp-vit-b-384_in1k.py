# CP-ViT-B/16 at 384: ViT-B with ContextPool after block 0. The paper's 88 M have room for one
# predictor only (1.3 M); one after every block is cp-vit-b-every-384_in1k.py.
# ContextPool (ICML 2022), number not checked; 88 M parameters, 57,200 M MACs. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.LearnedPositionEmbedding'),
    dict(type='mmposenc.ContextPool')]))
