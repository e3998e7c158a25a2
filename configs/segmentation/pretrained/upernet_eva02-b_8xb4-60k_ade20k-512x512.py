# UperNet on EVA-02-B, its patches of 14 pixels resized to 16, as in the release's recipe.
# Recipe: EVA-02's segmentation release, 60k steps of 32 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/upernet_eva02-b_8xb4-60k_ade20k-512x512.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=timm://eva02_base_patch14_224.mim_in22k
_base_ = [
    '../../_base_/models/upernet_dinov2.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/layer-decay_seg_160k.py']
train_dataloader = dict(batch_size=4)
model = dict(
    backbone=dict(
        arch='eva02-base', img_size=256, out_indices=(3, 5, 7, 11), final_norm=False,
        drop_path_rate=0.15),
    neck=dict(embed_dim=768),
    decode_head=dict(in_channels=[768, 768, 768, 768], channels=768),
    auxiliary_head=dict(in_channels=768))
optim_wrapper = dict(
    optimizer=dict(lr=0.00006), paramwise_cfg=dict(layer_decay_rate=0.85))
train_cfg = dict(max_iters=60000, val_interval=6000)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=1500),
    dict(type='PolyLR', power=1.0, eta_min=0.0, begin=1500, end=60000, by_epoch=False)]
default_hooks = dict(checkpoint=dict(interval=6000))
auto_scale_lr = dict(base_batch_size=32)
