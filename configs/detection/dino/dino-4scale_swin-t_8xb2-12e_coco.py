# DINO on Swin-T; padding reaches neither backbone, neck nor encoder.
# Recipe: mmdet's DINO, 12 epochs, 16 images a step.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/dino/dino-4scale_swin-t_8xb2-12e_coco.py 8
_base_ = 'dino-4scale_r50_8xb2-12e_coco.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', drop_path_rate=0.2, mask_padding=True,
        out_indices=(1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
            'swin_tiny_patch4_window7_224.pth')),
    neck=dict(type='mmposenc.ChannelMapper', in_channels=[192, 384, 768]))
