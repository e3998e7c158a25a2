# ViT-B/16 at 384: what CP-ViT-B is compared with.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/vit-b-384_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_384.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(
        arch='base', img_size=384, pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')),
    head=dict(in_channels=768))
