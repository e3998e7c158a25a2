# DETR on PVT-tiny with a learned position table; padding reaches neither backbone nor encoder.
# Recipe: DETR's, 150 epochs, 16 images a step.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_pvt-t_8xb2-150e_coco.py 8
_base_ = 'detr_r50_8xb2-150e_coco.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.PVT', arch='tiny', mask_padding=True, out_indices=(3, ),
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear'),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_tiny.pth')),
    neck=dict(in_channels=[512]))
