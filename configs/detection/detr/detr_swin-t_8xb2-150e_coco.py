# DETR on Swin-T; padding reaches neither backbone nor encoder.
# Recipe: DETR's, 150 epochs, 16 images a step.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_swin-t_8xb2-150e_coco.py 8
_base_ = 'detr_r50_8xb2-150e_coco.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', mask_padding=True, out_indices=(3, ),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
            'swin_tiny_patch4_window7_224.pth')),
    neck=dict(in_channels=[768]))
