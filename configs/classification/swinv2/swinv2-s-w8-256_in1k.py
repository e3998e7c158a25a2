# Swin V2-S at 256 with windows of 8.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/swinv2/swinv2-s-w8-256_in1k.py 8
_base_ = [
    '../../_base_/models/swin_cls.py', '../../_base_/datasets/imagenet_256.py',
    '../../_base_/schedules/imagenet_swin_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(arch='v2-small', img_size=256, drop_path_rate=0.3))
