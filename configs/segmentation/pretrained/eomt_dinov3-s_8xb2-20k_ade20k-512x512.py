# EoMT on DINOv3 ViT-S, all of it trained.
# Recipe: EoMT's release for ADE20K, 16 epochs, with one warm-up for transformer and queries, and
# masks annealed in the shares of the steps that MaskAnnealingHook has by itself.
# No number known to us from a paper for this size (ViT-L: 59.5 mIoU, tue-mps/eomt); not trained
# here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/eomt_dinov3-s_8xb2-20k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/models/eomt_dinov3.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/eomt.py']
train_dataloader = dict(batch_size=2)
