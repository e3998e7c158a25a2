# DeiT-S with its learned table, resized to each image.
# Recipe: PVT's detection release, 1x, with the weight decay of ViTDet; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask_rcnn/mask-rcnn_deit-s_sfp_1x_coco.py 8
_base_ = [
    '../../_base_/models/mask-rcnn_pvt.py', '../../_base_/datasets/coco_instance.py',
    '../../_base_/schedules/adamw_1x.py', '../../_base_/default_runtime.py']

# One map of stride 16 becomes a pyramid of strides 4 to 64
# (ViTDet's). All blocks attend to the whole image, and the class token stays where DeiT's weights
# have it.
model = dict(
    backbone=dict(
        _delete_=True, type='mmposenc.DeiT', arch='small', img_size=800, pool='cls',
        out_indices=(11,), final_norm=False, drop_path_rate=0.1, mask_padding=True,
        pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/deit/deit_small_patch16_224-cd65a155.pth')),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=384, out_channels=256,
        num_outs=5))
optim_wrapper = dict(optimizer=dict(weight_decay=0.1))
