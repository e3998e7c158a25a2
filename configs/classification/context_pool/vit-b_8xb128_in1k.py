# ViT-B/16 at 224, which vit-b_8xb128_in1k-384px.py starts from.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/vit-b_8xb128_in1k.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/imagenet_context_pool_300e.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(
        arch='base', pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding')),
    head=dict(in_channels=768))
