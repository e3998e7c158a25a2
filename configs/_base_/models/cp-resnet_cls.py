# CP-ResNet-50: depth, and what replaces pooling, are set by the configs. 16 hidden channels are
# what the paper's Table S2 has room for: .2 and .3 million parameters.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmposenc.CPResNet', depth=50,
        context_pool=dict(type='mmposenc.ContextPool', ratio=0.05, hidden_dims=16)),
    neck=dict(type='GlobalAveragePooling'),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=2048,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0)))
