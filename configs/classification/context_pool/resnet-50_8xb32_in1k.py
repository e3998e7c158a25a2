# ResNet-50: what CP-ResNet-50 is compared with.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/resnet-50_8xb32_in1k.py 8
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/imagenet_plain.py',
    '../../_base_/schedules/sgd_100e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(depth=50, context_pool=None))
