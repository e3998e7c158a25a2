# PVT-tiny: encodings and sizes are set by the configs below.
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmposenc.PVT', arch='tiny', pool='cls', drop_path_rate=0.1),
    head=dict(
        type='LinearClsHead',
        num_classes=1000,
        in_channels=512,
        init_cfg=dict(type='TruncNormal', layer='Linear', std=0.02),
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original')),
    train_cfg=dict(augments=[dict(type='Mixup', alpha=0.8), dict(type='CutMix', alpha=1.0)]))
