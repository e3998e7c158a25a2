# CP-Swin-B at 384: Swin-B with ContextPool of 18 hidden channels after every block but the last,
# over the whole map; from cp-swin-b_8xb128_in1k.py.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-swin-b_8xb128_in1k-384px.py 8
_base_ = 'swin-b_8xb128_in1k-384px.py'
start = 'work_dirs/cp-swin-b_8xb128_in1k/epoch_300.pth'
model = dict(
    backbone=dict(
        pos_encoding=dict(
            type='mmposenc.ContextPool', default_positions='every', hidden_dims=18),
        init_cfg=dict(checkpoint=start)),
    head=dict(init_cfg=dict(checkpoint=start)))
