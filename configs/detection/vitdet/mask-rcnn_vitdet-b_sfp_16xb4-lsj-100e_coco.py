# ViTDet's Mask R-CNN on ViT-B, from MAE's weights.
# Recipe: the paper's and its release's, large-scale jitter, 184,375 steps of 64 images; the release
# trains in float16 (--amp).
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/vitdet/mask-rcnn_vitdet-b_sfp_16xb4-lsj-100e_coco.py 16
_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py', '../../_base_/datasets/coco_instance_lsj-1024.py',
    '../../_base_/schedules/mask2former_50e.py']

# ViTDet's schedule: 184,375 steps of 64 images, 100 epochs of COCO; rates fall by .7 a block from
# the heads to the patches. As in the release norms and the table of positions do not decay, while
# biases and relative positions do.
max_iters = 184375
interval = _base_.interval
train_cfg = dict(
    max_iters=max_iters,
    dynamic_intervals=[(max_iters // interval * interval + 1, max_iters)])
optim_wrapper = dict(
    _delete_=True,
    type='OptimWrapper',
    constructor='mmposenc.LayerDecayOptimWrapperConstructor',
    optimizer=dict(type='AdamW', lr=0.0001, weight_decay=0.1, betas=(0.9, 0.999)),
    paramwise_cfg=dict(
        layer_decay_rate=0.7, num_layers=12, norm_decay_mult=0.0, bias_decay_mult=1.0,
        custom_keys={'rel_pos_encoding': dict(decay_mult=1.0)}))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=250),
    dict(type='MultiStepLR', begin=0, end=max_iters, by_epoch=False, milestones=[163889, 177546],
         gamma=0.1)]
auto_scale_lr = dict(base_batch_size=64)

# ViTDet's Mask R-CNN (Li et al., ECCV 2022, Sec. 4): a plain ViT-B in windows with four global
# blocks, its simple feature pyramid, and heads that are deeper and normed: two convolutions in the
# RPN, four before a box's linear layers. Images are filled up to 1024x1024 and, as in the release,
# attention sees what fills them up.
norm = dict(type='mmposenc.LayerNorm2d', eps=1e-6)
model = dict(
    data_preprocessor=dict(type='mmposenc.DetDataPreprocessor', pad_size_divisor=1024),
    backbone=dict(
        _delete_=True, type='mmposenc.ViT', arch='vitdet-base', drop_path_rate=0.1,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://dl.fbaipublicfiles.com/mae/pretrain/mae_pretrain_vit_base.pth')),
    neck=dict(
        _delete_=True, type='mmposenc.SimpleFeaturePyramid', in_channels=768, out_channels=256,
        num_outs=5),
    rpn_head=dict(num_convs=2),
    roi_head=dict(
        bbox_head=dict(type='Shared4Conv1FCBBoxHead', conv_out_channels=256, norm_cfg=norm),
        mask_head=dict(norm_cfg=norm)))
train_dataloader = dict(batch_size=4)
