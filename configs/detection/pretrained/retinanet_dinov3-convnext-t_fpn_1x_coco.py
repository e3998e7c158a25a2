# RetinaNet on DINOv3's ConvNeXt-T with FPN. The other sizes: backbone.arch (mmpretrain's), the
# channels of the neck, and their file.
# Recipe: PVT's detection release, 1x, with the decays of ViTDet.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/retinanet_dinov3-convnext-t_fpn_1x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_pvt.py', '../../_base_/datasets/coco_detection.py',
    '../../_base_/schedules/layer-decay_1x.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ConvNeXt', arch='tiny', out_indices=(0, 1, 2, 3),
        gap_before_final_norm=False, drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='timm://convnext_tiny.dinov3_lvd1689m')),
    neck=dict(in_channels=[96, 192, 384, 768]))
