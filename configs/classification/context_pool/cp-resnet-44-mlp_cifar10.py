# CP-ResNet-44 for CIFAR-10 with weights and sizes from each cell alone, through 80 hidden channels.
# Reference: metafile.yml. Not trained here.
#
#     python tools/train.py configs/classification/context_pool/cp-resnet-44-mlp_cifar10.py
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/cifar10.py',
    '../../_base_/schedules/sgd_200e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(depth=44, context_pool=dict(hidden_dims=80, predictor='mlp')),
    head=dict(num_classes=10, in_channels=64))
