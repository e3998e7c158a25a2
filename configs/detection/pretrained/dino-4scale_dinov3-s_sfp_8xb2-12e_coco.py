# DINO on DINOv3 ViT-S/16: four levels of ViTDet's pyramid.
# Recipe: mmdet's DINO, 12 epochs, 16 images a step.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/dino-4scale_dinov3-s_sfp_8xb2-12e_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = '../dino/dino-4scale_r50_8xb2-12e_coco.py'
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='dinov3-small', out_indices=(11,),
        drop_path_rate=0.1, mask_padding=True),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=384,
        out_channels=256, scales=(2, 1, 0.5), num_outs=4))
