# DeiT-B: a learned table, a class token.
# DeiT (ICML 2021), release: top-1 81.8; 86,567,656 parameters, 17,592 M MACs (iRPE, Table 5). Not
# trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-b_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_repeated.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(
    arch='base',
    pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')), head=dict(in_channels=768))
