# UperNet on DINOv3's ConvNeXt-T, all of it trained.
# Recipe: BEiT's segmentation release at 512, 160k steps of 16 images.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/pretrained/upernet_dinov3-convnext-t_8xb2-160k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/upernet_pvt.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/layer-decay_seg_160k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.ConvNeXt', arch='tiny', out_indices=(0, 1, 2, 3),
        gap_before_final_norm=False, drop_path_rate=0.1,
        init_cfg=dict(type='Pretrained', checkpoint='timm://convnext_tiny.dinov3_lvd1689m')),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
    auxiliary_head=dict(in_channels=384))
