# CP-ViT-B/16 of 10 layers at 384: ContextPool after the first nine; from cp-vit-b-10-224_in1k.py.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b-10-384_in1k.py 8
_base_ = 'vit-b-384_in1k.py'
start = 'work_dirs/cp-vit-b-10-224_in1k/epoch_300.pth'
model = dict(
    backbone=dict(
        num_layers=10,
        pos_encoding=[
            dict(type='mmposenc.LearnedPositionEmbedding'),
            dict(type='mmposenc.ContextPool', default_positions='every', hidden_dims=26)],
        init_cfg=dict(checkpoint=start)),
    head=dict(init_cfg=dict(checkpoint=start)))
