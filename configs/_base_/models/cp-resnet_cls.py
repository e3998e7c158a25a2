# CP-ResNet-50: depth, and what replaces pooling, are set by the configs.
model = dict(
    type='ImageClassifier',
    backbone=dict(type='mmposenc.CPResNet', depth=50),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=2048,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0)))
