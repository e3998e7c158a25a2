# Swin-B at 224: what CP-Swin-B is compared with, and what swin-b_8xb128_in1k-384px.py starts from.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/swin-b_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/swin_cls.py', '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/imagenet_context_pool_300e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(
        arch='base', drop_path_rate=0.5),
    head=dict(in_channels=1024))
