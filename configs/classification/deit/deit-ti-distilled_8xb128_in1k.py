# DeiT-Ti with a distillation token and hard distillation from timm's RegNetY-160.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/deit/deit-ti-distilled_8xb128_in1k.py 8
_base_ = 'deit-ti_8xb128_in1k.py'
model = dict(
    type='mmposenc.DistilledClassifier',
    teacher=dict(
        type='mmpretrain.TimmClassifier',
        model_name='regnety_160',
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/deit/regnety_160-a5fe301d.pth')),
    backbone=dict(distilled=True),
    head=dict(
        _delete_=True,
        type='mmposenc.DistillationHead',
        num_classes=1000,
        in_channels=192,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original')))
