# CP-ResNet-46 for CIFAR-10: ContextPool in place of the strides of stages 1 and 2.
# Reference: metafile.yml. Not trained here.
#
#     python tools/train.py configs/classification/context_pool/cp-resnet-46_cifar10.py
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/sgd_200e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(depth=46),
    head=dict(num_classes=10, in_channels=64))
