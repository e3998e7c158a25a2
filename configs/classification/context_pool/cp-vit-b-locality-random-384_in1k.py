# Ablation of CP-ViT-B/16 at 384: 32 random tokens; half the hidden channels; from
# cp-vit-b-locality-random-224_in1k.py.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh \
#         configs/classification/context_pool/cp-vit-b-locality-random-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
start = 'work_dirs/cp-vit-b-locality-random-224_in1k/epoch_300.pth'
model = dict(
    backbone=dict(
        pos_encoding=[
            dict(type='mmposenc.LearnedPositionEmbedding'),
            dict(type='mmposenc.ContextPool',
                 default_positions='every', hidden_dims=13, locality='random_sparse')],
        init_cfg=dict(checkpoint=start)),
    head=dict(init_cfg=dict(checkpoint=start)))
