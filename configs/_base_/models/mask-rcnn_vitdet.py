# ViTDet's Mask R-CNN (Li et al., ECCV 2022, Sec. 4): a plain ViT-B in windows with four global
# blocks, its simple feature pyramid, and heads that are deeper and normed: two convolutions in the
# RPN, four before a box's linear layers. Images are filled up to 1024x1024 and, as in the release,
# attention sees what fills them up.
_base_ = 'mmdet::_base_/models/mask-rcnn_r50_fpn.py'
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
