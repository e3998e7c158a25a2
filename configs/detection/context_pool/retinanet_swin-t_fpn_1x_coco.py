# Swin-T: what CP-Swin-T is compared with.
# Recipe: PVT's detection release, 1x; starts from Swin's classifier.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/context_pool/retinanet_swin-t_fpn_1x_coco.py 8
_base_ = '../pvt/retinanet_pvt-t_fpn_1x_coco.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.Swin', arch='tiny', drop_path_rate=0.2, mask_padding=True,
        out_indices=(1, 2, 3),  # the first stage's norm would get no gradient
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
            'swin_tiny_patch4_window7_224.pth')),
    neck=dict(in_channels=[192, 384, 768], start_level=0))
