# RT-DETRv2 on ResNet-18-vd: RT-DETR's model, with a number of points for each level.
# Recipe: the release's, 120 epochs, 16 images a step of 640x640, colours, canvases and crops until
# epoch 117, one rate for all.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/rt_detr/rt-detrv2_r18vd_4xb4-120e_coco.py 4
_base_ = 'rt-detr_r18vd_4xb4-72e_coco.py'
model = dict(
    data_preprocessor=dict(batch_augments=None),
    decoder=dict(layer_cfg=dict(cross_attn_cfg=dict(num_points=[4, 4, 4]))))

max_epochs = 120
train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=1.0))))
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs)
custom_hooks = [
    *_base_.custom_hooks,
    dict(type='PipelineSwitchHook', switch_epoch=117, switch_pipeline=_base_.plain_pipeline)]
