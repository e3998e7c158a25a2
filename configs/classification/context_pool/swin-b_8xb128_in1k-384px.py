# Swin-B at 384, from swin-b_8xb128_in1k.py: what CP-Swin-B is compared with.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/swin-b_8xb128_in1k-384px.py 8
_base_ = [
    '../../_base_/models/swin_cls.py', '../../_base_/datasets/imagenet_384.py',
    '../../_base_/schedules/finetune_384_30e.py', '../../_base_/default_runtime.py']
start = 'work_dirs/swin-b_8xb128_in1k/epoch_300.pth'
model = dict(
    backbone=dict(
        arch='base', drop_path_rate=0.1, img_size=384, window_size=12,
        init_cfg=dict(type='Pretrained', checkpoint=start)),
    head=dict(in_channels=1024, init_cfg=dict(
        _delete_=True, type='Pretrained', prefix='head.', checkpoint=start)))
