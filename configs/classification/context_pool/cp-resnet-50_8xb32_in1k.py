# CP-ResNet-50: ContextPool in place of the max pooling and of the strides of later stages.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/cp-resnet-50_8xb32_in1k.py 8
_base_ = [
    '../../_base_/models/cp-resnet_cls.py', '../../_base_/datasets/imagenet_plain.py',
    '../../_base_/schedules/sgd_100e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(depth=50))
