# DeiT-B, pretrained on ImageNet, on CUB-200-2011.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/transfer/deit-b_8xb32_cub.py 8
_base_ = [
    '../../_base_/models/deit_cls.py', '../../_base_/datasets/imagenet.py',
    '../../_base_/schedules/imagenet_300e.py', '../../_base_/default_runtime.py']

# 300 epochs of fine-tuning, 256 images a step. iRPE's supplement gives the epochs and nothing else;
# the learning rate is a tenth of that of training.
optim_wrapper = dict(optimizer=dict(lr=2.5e-5))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.01, by_epoch=True, begin=0, end=5,
        convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=2.5e-7, by_epoch=True, begin=5, end=300, T_max=295)]
auto_scale_lr = dict(base_batch_size=256)

model = dict(
    backbone=dict(
        arch='base',
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/deit/deit_base_patch16_224-b5f2ef4d.pth')),
    head=dict(in_channels=768, num_classes=200))

# CUB-200-2011 in data/CUB_200_2011, at 224 x 224, augmented as ImageNet.
data_preprocessor = dict(num_classes=200)
train_dataloader = dict(
    batch_size=32, dataset=dict(type='CUB', data_root='data/CUB_200_2011', split='train'))
val_dataloader = dict(
    batch_size=32, dataset=dict(type='CUB', data_root='data/CUB_200_2011', split='test'))
test_dataloader = val_dataloader
