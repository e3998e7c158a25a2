# PVT-small with a PEG after the first block of every stage, pre-trained with average pooling.
# Recipe: the Twins release's 3x; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
# Starts from the classifier of the Twins release, timm's copy (docs/weights.md).
#
#     bash tools/dist_train.sh \
#         configs/detection/mask_rcnn/mask-rcnn_pvt-s-peg-gap_fpn_ms-480-800-crop-3x_coco.py 8
_base_ = [
    '../../_base_/models/mask-rcnn_pvt.py', '../../_base_/datasets/coco_instance.py',
    '../../_base_/schedules/adamw_3x.py', '../../_base_/default_runtime.py']

# The sizes of the Twins release's 3x: shorter side 480 to 800, longer side at most 1333; every
# other image is cropped before. (As DETR's, whose crops come from images of any longer side.)
scales = [(side, 1333) for side in range(480, 801, 32)]
train_pipeline = [
    dict(type='mmposenc.LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='RandomChoice', transforms=[
        [dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)],
        [dict(type='RandomChoiceResize', scales=[(400, 1333), (500, 1333), (600, 1333)],
              keep_ratio=True),
         dict(type='RandomCrop', crop_type='absolute_range', crop_size=(384, 600),
              allow_negative_crop=True),
         dict(type='RandomChoiceResize', scales=scales, keep_ratio=True)]]),
    dict(type='PackDetInputs')]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
model = dict(backbone=dict(
    arch='small', drop_path_rate=0.2, pos_encoding=dict(_delete_=True, type='mmposenc.PEG'),
    init_cfg=dict(
        type='Pretrained', checkpoint='https://github.com/huggingface/'
        'pytorch-image-models/releases/download/v0.1-vt3p-weights/twins_pcpvt_small-e70e7e7a.pth')))
