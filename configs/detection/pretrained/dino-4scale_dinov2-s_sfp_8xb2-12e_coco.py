# DINO on DINOv2 ViT-S, its patches resized to 16 pixels: four levels of ViTDet's pyramid.
# Recipe: mmdet's DINO, 12 epochs, 16 images a step.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/dino-4scale_dinov2-s_sfp_8xb2-12e_coco.py 8
_base_ = '../dino/dino-4scale_r50_8xb2-12e_coco.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov2-small', patch_size=16,
        img_size=592, out_indices=(11,), drop_path_rate=0.1, mask_padding=True,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vits14/'
            'dinov2_vits14_pretrain.pth')),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=384,
        out_channels=256, scales=(2, 1, 0.5), num_outs=4))
