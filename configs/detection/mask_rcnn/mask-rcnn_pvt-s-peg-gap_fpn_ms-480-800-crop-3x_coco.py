# PVT-small with a PEG after the first block of every stage, pre-trained with average pooling.
# Recipe: the Twins release's 3x; decays neither norms nor encodings.
# No number known to us from a paper; not trained here.
#
# Starts from the classifier of the Twins release, timm's copy (docs/weights.md).
#
#     bash tools/dist_train.sh \
#         configs/detection/mask_rcnn/mask-rcnn_pvt-s-peg-gap_fpn_ms-480-800-crop-3x_coco.py 8
_base_ = [
    '../../_base_/models/mask-rcnn_pvt.py',
    '../../_base_/datasets/coco_detection_ms-480-800-crop.py',
    '../../_base_/schedules/adamw_3x.py', '../../_base_/default_runtime.py']

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[1]['with_mask'] = test_pipeline[2]['with_mask'] = True
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(metric=['bbox', 'segm'])
test_evaluator = val_evaluator
model = dict(backbone=dict(
    arch='small', drop_path_rate=0.2, pos_encoding=dict(_delete_=True, type='mmposenc.PEG'),
    init_cfg=dict(
        type='Pretrained', checkpoint='https://github.com/huggingface/'
        'pytorch-image-models/releases/download/v0.1-vt3p-weights/twins_pcpvt_small-e70e7e7a.pth')))
