# CP-Swin-B at 224: Swin-B with ContextPool of 18 hidden channels after every block but the last,
# over the whole map.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-swin-b_8xb128_in1k.py 8
_base_ = 'swin-b_8xb128_in1k.py'
model = dict(backbone=dict(pos_encoding=dict(
    type='mmposenc.ContextPool', default_positions='every', hidden_dims=18)))
