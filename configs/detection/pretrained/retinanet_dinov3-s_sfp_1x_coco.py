# RetinaNet on DINOv3 ViT-S/16 with ViTDet's pyramid.
# Recipe: PVT's detection release, 1x, with the decays of ViTDet.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/retinanet_dinov3-s_sfp_1x_coco.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/retinanet_dinov2.py', '../../_base_/datasets/coco_detection.py',
    '../../_base_/schedules/layer-decay_1x.py', '../../_base_/default_runtime.py']
model = dict(backbone=dict(arch='dinov3-small'))
