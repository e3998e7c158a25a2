# CP-ViT-B/16 at 384: ViT-B with ContextPool of 26 hidden channels after every block but the last;
# from cp-vit-b_8xb128_in1k.py.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-vit-b_8xb128_in1k-384px.py 8
_base_ = 'vit-b_8xb128_in1k-384px.py'
start = 'work_dirs/cp-vit-b_8xb128_in1k/epoch_300.pth'
model = dict(
    backbone=dict(
        pos_encoding=[
            dict(type='mmposenc.LearnedPositionEmbedding'),
            dict(type='mmposenc.ContextPool', default_positions='every', hidden_dims=26)],
        init_cfg=dict(checkpoint=start)),
    head=dict(init_cfg=dict(checkpoint=start)))
