# DeiT in the size of ViT-L, with its weights, gradients and optimizer spread over the processes
# (FSDP2) by mmengine's FlexibleRunner. Beyond the paper: DeiT's recipe, which was made for smaller
# models. Not trained here. Reference: metafile.yml
#
#     bash tools/dist_train.sh configs/classification/large/deit-l_8xb128-fsdp2_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/runtime_fsdp2.py']
model = dict(
    backbone=dict(
        arch='large', drop_path_rate=0.4,
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')),
    head=dict(in_channels=1024))
