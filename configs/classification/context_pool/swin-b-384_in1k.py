# Swin-B at 384: what CP-Swin-B is compared with.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/swin-b-384_in1k.py 8
_base_ = [
    '../../_base_/models/swin_cls.py', '../../_base_/datasets/imagenet_384.py',
    '../../_base_/schedules/imagenet_swin_300e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(
        arch='base', drop_path_rate=0.5, img_size=384, window_size=12),
    head=dict(in_channels=1024))
