# DeiT-Ti without any position encoding.
# CPVT (ICLR 2023), comparison of encodings: top-1 68.2. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-ti-none_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
