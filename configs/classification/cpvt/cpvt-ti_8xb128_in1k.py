# CPVT-Ti: DeiT-Ti with one PEG, after block 0, instead of the table.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/cpvt/cpvt-ti_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(pos_encoding=dict(type='mmposenc.PEG', bias=False)))
