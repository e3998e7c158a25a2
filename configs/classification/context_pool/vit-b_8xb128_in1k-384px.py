# ViT-B/16 at 384, from vit-b_8xb128_in1k.py: what CP-ViT-B is compared with.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/context_pool/vit-b_8xb128_in1k-384px.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet_384.py',
    '../../_base_/schedules/finetune_384_30e.py', '../../_base_/default_runtime.py']
start = 'work_dirs/vit-b_8xb128_in1k/epoch_300.pth'
model = dict(
    backbone=dict(
        arch='base', img_size=384, pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
        init_cfg=dict(type='Pretrained', checkpoint=start)),
    head=dict(in_channels=768, init_cfg=dict(
        _delete_=True, type='Pretrained', prefix='head.', checkpoint=start)))
