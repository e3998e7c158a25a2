# DeiT-S without any position encoding.
# iRPE (ICCV 2021), Table 4, row 2: top-1 77.6. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-s-none_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(arch='small'), head=dict(in_channels=384))
