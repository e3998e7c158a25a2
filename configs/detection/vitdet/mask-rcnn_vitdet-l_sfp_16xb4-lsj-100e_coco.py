# ViTDet's Mask R-CNN on ViT-L, from MAE's weights.
# Recipe: the paper's and its release's, large-scale jitter, 184,375 steps of 64 images; the release
# trains in float16 (--amp).
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/vitdet/mask-rcnn_vitdet-l_sfp_16xb4-lsj-100e_coco.py 16
_base_ = 'mask-rcnn_vitdet-b_sfp_16xb4-lsj-100e_coco.py'
model = dict(
    backbone=dict(
        arch='vitdet-large', drop_path_rate=0.4,
        init_cfg=dict(
            checkpoint='https://dl.fbaipublicfiles.com/mae/pretrain/mae_pretrain_vit_large.pth')),
    neck=dict(in_channels=1024))
optim_wrapper = dict(paramwise_cfg=dict(layer_decay_rate=0.8, num_layers=24))
