# DeiT-S: a learned table, a class token.
# DeiT (ICML 2021), release: top-1 79.9; 22,050,664 parameters, 4,613 M MACs (iRPE, Table 5). Not
# trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-s_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    arch='small',
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')), head=dict(in_channels=384))
