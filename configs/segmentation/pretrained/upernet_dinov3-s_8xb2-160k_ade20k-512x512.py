# UperNet on DINOv3 ViT-S, all of it trained.
# Recipe: BEiT's segmentation release at 512, 160k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/upernet_dinov3-s_8xb2-160k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/upernet_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/layer-decay_seg_160k.py']
train_dataloader = dict(batch_size=2)
model = dict(backbone=dict(arch='dinov3-small'))
