# Stanford Cars in data/Stanford_Cars, at 224 x 224, augmented as ImageNet.
_base_ = 'imagenet.py'
data_preprocessor = dict(num_classes=196)
train_dataloader = dict(
    batch_size=32,
    dataset=dict(type='StanfordCars', data_root='data/Stanford_Cars', split='train'))
val_dataloader = dict(
    batch_size=32, dataset=dict(type='StanfordCars', data_root='data/Stanford_Cars', split='test'))
test_dataloader = val_dataloader
