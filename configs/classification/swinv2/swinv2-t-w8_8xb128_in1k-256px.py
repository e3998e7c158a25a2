# Swin V2-T at 256 with windows of 8.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/swinv2/swinv2-t-w8_8xb128_in1k-256px.py 8
_base_ = [
    '../../_base_/models/swin_cls.py', '../../_base_/datasets/imagenet_256.py',
    '../../_base_/schedules/imagenet_swin_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(arch='v2-tiny', img_size=256))
