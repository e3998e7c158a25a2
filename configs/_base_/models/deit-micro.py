# DeiT-Ti's shape, small enough to be trained on a CPU in minutes: 16 tokens of 8x8 pixels.
default_scope = 'mmpretrain'
# Black is zero, so what a backbone fills up at the border is background. Std: of MNIST's pixels.
data_preprocessor = dict(num_classes=10, mean=[0.0], std=[78.6], to_rgb=False)
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmposenc.DeiT', img_size=32, patch_size=8, in_channels=1, embed_dims=48,
        num_layers=3, num_heads=3, mlp_ratio=2.0, pool='cls'),
    head=dict(
        type='LinearClsHead', num_classes=10, in_channels=48,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0)))
