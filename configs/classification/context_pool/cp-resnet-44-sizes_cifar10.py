# CP-ResNet-44 for CIFAR-10 that learns sizes alone: weights are uniform, hidden channels half as
# many.
# Reference: metafile.yml. Not trained here.
#
#     python tools/train.py configs/classification/context_pool/cp-resnet-44-sizes_cifar10.py
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/sgd_200e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(depth=44, context_pool=dict(hidden_dims=20, weights='uniform')),
    head=dict(num_classes=10, in_channels=64))
