# DeiT-B with its table, pretrained on ImageNet, for another data set.
_base_ = 'deit_cls.py'
model = dict(
    backbone=dict(
        arch='base',
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/deit/deit_base_patch16_224-b5f2ef4d.pth')),
    head=dict(in_channels=768))
