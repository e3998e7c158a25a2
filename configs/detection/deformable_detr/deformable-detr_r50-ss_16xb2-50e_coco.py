# Deformable DETR on one level, of stride 32.
# Recipe: Deformable DETR's, 50 epochs, 32 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/deformable_detr/deformable-detr_r50-ss_16xb2-50e_coco.py 16
_base_ = 'deformable-detr_r50_16xb2-50e_coco.py'
model = dict(
    num_feature_levels=1,
    backbone=dict(out_indices=(3, )),
    neck=dict(in_channels=[2048], num_outs=1),
    encoder=dict(layer_cfg=dict(self_attn_cfg=dict(num_levels=1))),
    decoder=dict(layer_cfg=dict(cross_attn_cfg=dict(num_levels=1))))
