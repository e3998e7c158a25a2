# Mask2Former on ResNet-50 for instances, as mmdet's: 100 queries, sines and cosines in the pixel
# decoder.
# Recipe: mmdet's Mask2Former, large-scale jitter, 368,750 steps of 16 images.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/mask2former/mask2former_r50_8xb2-lsj-50e_coco.py 8
_base_ = [
    '../../_base_/models/mask2former_head.py', '../../_base_/models/mask2former_instances.py',
    '../../_base_/datasets/coco_instance_lsj.py', '../../_base_/schedules/mask2former_50e.py']
num_classes = _base_.num_classes
panoptic_head = dict(
    _base_.mask2former_head,
    loss_cls=dict(
        type='CrossEntropyLoss', use_sigmoid=False, loss_weight=2.0, reduction='mean',
        class_weight=[1.0] * num_classes + [0.1]),
    loss_mask=dict(
        type='CrossEntropyLoss', use_sigmoid=True, reduction='mean', loss_weight=5.0),
    loss_dice=dict(
        type='DiceLoss', use_sigmoid=True, activate=True, reduction='mean', naive_dice=True,
        eps=1.0, loss_weight=5.0),
    num_things_classes=num_classes,
    num_stuff_classes=0)
model = dict(
    data_preprocessor=dict(batch_augments=[dict(
        type='BatchFixedSizePad', size=(1024, 1024), img_pad_value=0, pad_mask=True,
        mask_pad_value=0, pad_seg=False)]),
    backbone=dict(
        type='ResNet',
        depth=50,
        num_stages=4,
        out_indices=(0, 1, 2, 3),
        frozen_stages=-1,
        norm_cfg=dict(type='BN', requires_grad=False),
        norm_eval=True,
        style='pytorch',
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')),
    panoptic_head=panoptic_head,
    train_cfg=dict(
        num_points=12544,
        oversample_ratio=3.0,
        importance_sample_ratio=0.75,
        assigner=dict(type='HungarianAssigner', match_costs=[
            dict(type='ClassificationCost', weight=2.0),
            dict(type='CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
            dict(type='DiceCost', weight=5.0, pred_act=True, eps=1.0)]),
        sampler=dict(type='MaskPseudoSampler')))
