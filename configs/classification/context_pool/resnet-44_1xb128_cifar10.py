# ResNet-44 for CIFAR-10: what CP-ResNet-44 is compared with.
# Reference: metafile.yml. Not trained here.
#
#     python tools/train.py configs/classification/context_pool/resnet-44_1xb128_cifar10.py
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/sgd_200e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(depth=44, context_pool=None),
    head=dict(num_classes=10, in_channels=64))
