# ResNet-46 for CIFAR-10: what CP-ResNet-46 is compared with.
# Reference: metafile.yml. Not trained here.
#
#     python tools/train.py configs/classification/context_pool/resnet-46_cifar10.py
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/sgd_200e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(depth=46, stage_blocks=(7, 8, 7), context_pool=None),
    head=dict(num_classes=10, in_channels=64))
