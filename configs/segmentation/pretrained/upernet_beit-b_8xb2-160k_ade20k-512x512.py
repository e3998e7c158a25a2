# UperNet on BEiT-B (its biases resized to each grid), all of it trained.
# Recipe: BEiT's segmentation release, 160k steps of 16 images, at 512 instead of 640.
# No number known to us from a paper (at 640 the release gives 53.6); not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/upernet_beit-b_8xb2-160k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=timm://beit_base_patch16_224.in22k_ft_in22k
_base_ = [
    '../../_base_/models/upernet_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/layer-decay_seg_160k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(arch='beit-base', out_indices=(3, 5, 7, 11), final_norm=False),
    neck=dict(embed_dim=768),
    decode_head=dict(in_channels=[768, 768, 768, 768], channels=768),
    auxiliary_head=dict(in_channels=768))
