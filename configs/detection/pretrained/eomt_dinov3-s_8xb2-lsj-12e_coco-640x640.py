# EoMT on DINOv3 ViT-S for instances, all of it trained.
# Recipe: EoMT's release for COCO, 12 epochs at 640x640. There the rates fall by 0.8 from block to
# block; here that of the transformer is a tenth, as in the release's recipe for ADE20K.
# No number known to us from a paper for this size (ViT-L: 45.9 mask AP, tue-mps/eomt); not trained
# here.
#
#     bash tools/dist_train.sh \
#         configs/detection/pretrained/eomt_dinov3-s_8xb2-lsj-12e_coco-640x640.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = [
    '../../_base_/datasets/coco_instance_lsj-1024.py', '../../_base_/schedules/eomt.py']

# EoMT on DINOv3's ViT-S/16 for instances: 200 queries join the last 3 blocks.
num_classes, num_queries = 80, 200
model = dict(
    type='Mask2Former',
    data_preprocessor=dict(
        type='mmposenc.DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=16,
        pad_mask=True,
        mask_pad_value=0,
        pad_seg=False),
    backbone=dict(
        type='mmposenc.EoMT',
        arch='dinov3-small',
        num_classes=num_classes,
        num_queries=num_queries,
        query_blocks=3,
        mask_padding=True),
    panoptic_head=dict(
        type='mmposenc.EoMTHead', num_things_classes=num_classes, num_queries=num_queries),
    panoptic_fusion_head=dict(
        type='MaskFormerFusionHead', num_things_classes=num_classes, num_stuff_classes=0,
        loss_panoptic=None),
    test_cfg=dict(
        panoptic_on=False, semantic_on=False, instance_on=True, max_per_image=100, iou_thr=0.8,
        filter_low_score=True))
scale = (640, 640)
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile', to_float32=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomResize', scale=scale, ratio_range=(0.1, 2.0), resize_type='Resize',
        keep_ratio=True),
    dict(
        type='RandomCrop', crop_size=scale, crop_type='absolute', recompute_bbox=True,
        allow_negative_crop=True),
    dict(type='FilterAnnotations', min_gt_bbox_wh=(1e-5, 1e-5), by_mask=True),
    dict(type='PackDetInputs')]
test_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='Resize', scale=scale, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
train_dataloader = dict(batch_size=2, dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
max_iters = 88715
train_cfg = dict(max_iters=max_iters, val_interval=max_iters // 6)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, begin=0, end=2000, by_epoch=False),
    dict(type='PolyLR', power=0.9, eta_min=0.0, begin=2000, end=max_iters, by_epoch=False)]
