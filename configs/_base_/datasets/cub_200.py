# CUB-200-2011 in data/CUB_200_2011, at 224 x 224, augmented as ImageNet.
_base_ = 'imagenet.py'
data_preprocessor = dict(num_classes=200)
train_dataloader = dict(
    batch_size=32, dataset=dict(type='CUB', data_root='data/CUB_200_2011', split='train'))
val_dataloader = dict(
    batch_size=32, dataset=dict(type='CUB', data_root='data/CUB_200_2011', split='test'))
test_dataloader = val_dataloader
