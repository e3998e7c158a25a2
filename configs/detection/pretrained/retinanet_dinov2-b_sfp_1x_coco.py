# RetinaNet on DINOv2 ViT-B/14 with ViTDet's pyramid.
# Recipe: PVT's detection release, 1x, with the decays of ViTDet.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/retinanet_dinov2-b_sfp_1x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_dinov2.py', '../../_base_/datasets/coco_detection.py',
    '../../_base_/schedules/layer-decay_1x.py', '../../_base_/default_runtime.py']
model = dict(
    backbone=dict(
        arch='dinov2-base',
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vitb14/'
            'dinov2_vitb14_pretrain.pth')),
    neck=dict(in_channels=768))
