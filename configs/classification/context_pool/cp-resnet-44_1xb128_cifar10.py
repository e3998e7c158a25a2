# CP-ResNet-44 for CIFAR-10: ContextPool of 40 hidden channels in place of the strides of stages 1
# and 2.
# Reference: metafile.yml. Not trained here.
#
#     python tools/train.py configs/classification/context_pool/cp-resnet-44_1xb128_cifar10.py
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/sgd_200e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(depth=44, context_pool=dict(hidden_dims=40)),
    head=dict(num_classes=10, in_channels=64))
