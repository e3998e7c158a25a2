# Swin-T with iRPE on queries, keys and values inside the windows instead of its biases: Product,
# contextual, shared.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/swin/swin-t_irpe-qkv_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/swin_cls.py', '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/imagenet_swin_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='qkv')))
