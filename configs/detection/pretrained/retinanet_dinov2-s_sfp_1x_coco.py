# RetinaNet on DINOv2 ViT-S, its patches resized to 16 pixels, with ViTDet's pyramid.
# Recipe: PVT's detection release, 1x, with the decays of ViTDet.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/retinanet_dinov2-s_sfp_1x_coco.py 8
_base_ = [
    '../../_base_/models/retinanet_dinov2.py', '../../_base_/datasets/coco_detection.py',
    '../../_base_/schedules/layer-decay_1x.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(img_size=592, init_cfg=dict(
    type='Pretrained',
    checkpoint='https://dl.fbaipublicfiles.com/dinov2/dinov2_vits14/dinov2_vits14_pretrain.pth')))
