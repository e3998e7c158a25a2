# A model of timm from random weights, for a folder with train/ and val/, a folder for each class.
# A config that inherits it names the model and the channels of its features (docs/timm.md).
_base_ = ['datasets/imagenet_plain.py', 'schedules/adamw_micro.py', 'default_runtime.py']
model = dict(
    type='ImageClassifier',
    backbone=dict(type='mmposenc.TimmBackbone', name=None),
    head=dict(
        type='LinearClsHead', num_classes=1000, in_channels=None,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0)))
train_dataloader = dict(num_workers=2, drop_last=False)
val_dataloader = dict(num_workers=2, batch_size=64)
test_dataloader = val_dataloader
optim_wrapper = dict(
    optimizer=dict(lr=3e-4),
    paramwise_cfg=dict(custom_keys={
        name: dict(decay_mult=0.0)
        for name in ('pos_embed', 'reg_token', 'relative_position_bias_table')}))
