# CP-ResNet-46 for CIFAR-10: CP-ResNet-44 with one more block, in the second stage: there it has the
# 0.70 million parameters of the paper.
# Reference: metafile.yml. Not trained here.
#
#     python tools/train.py configs/classification/context_pool/cp-resnet-46_cifar10.py
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/sgd_200e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(depth=46, stage_blocks=(7, 8, 7), context_pool=dict(hidden_dims=40)),
    head=dict(num_classes=10, in_channels=64))
