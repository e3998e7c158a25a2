# A PVT of two stages (8x8 and 4x4 tokens of a 32x32 image), trained on a CPU in minutes.
default_scope = 'mmpretrain'
data_preprocessor = dict(num_classes=10, mean=[0.0], std=[78.6], to_rgb=False)
model = dict(
    type='ImageClassifier',
    backbone=dict(
        type='mmposenc.PVT', img_size=32, patch_sizes=(4, 2), in_channels=1, embed_dims=(48, 96),
        num_layers=(2, 2), num_heads=(1, 2), sr_ratios=(2, 1), mlp_ratios=(2, 2),
        drop_path_rate=0.0, out_indices=(1,), pool='gap'),
    head=dict(
        type='LinearClsHead', num_classes=10, in_channels=96,
        loss=dict(type='CrossEntropyLoss', loss_weight=1.0)))
