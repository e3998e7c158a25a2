# D-FINE-S on HGNetV2-B0, sines and cosines in the neck.
# Recipe: the release's, 132 epochs, 32 images a step of 640x640, colours, canvases and crops until
# epoch 120; the release also varies the size by 32 to 160 pixels in a sixth of the batches.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/d_fine/d-fine_s_4xb8-132e_coco.py 4
_base_ = [
    '../../_base_/models/d-fine_s.py', '../../_base_/datasets/coco_detection_640.py',
    '../../_base_/schedules/rt-detr_72e.py', '../../_base_/default_runtime.py']
max_epochs = 132
train_cfg = dict(max_epochs=max_epochs)
train_dataloader = dict(batch_size=8)
optim_wrapper = dict(
    optimizer=dict(lr=0.0002), paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.5))))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.002, by_epoch=False, begin=0, end=500),
    dict(type='ConstantLR', factor=1.0, begin=0, end=max_epochs)]
custom_hooks = [
    {**_base_.custom_hooks[0], 'gamma': 1000},
    dict(type='PipelineSwitchHook', switch_epoch=120, switch_pipeline=_base_.plain_pipeline)]
auto_scale_lr = dict(base_batch_size=32)
