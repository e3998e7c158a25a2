# A small DINO on blood cells, from random weights: sines and cosines in the encoder.
#
#     python tools/train.py configs/detection/small/dino_r18-w16_1xb4-15e_bccd.py
_base_ = [
    '../../_base_/models/deformable-detr_r18-w16.py', '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_small-detr_50e.py', '../../_base_/default_runtime.py']
max_epochs = 15
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_epochs, T_max=max_epochs)

# The small Deformable DETR with two stages and denoising queries.
model = dict(
    type='mmposenc.DINO',
    as_two_stage=True,
    positional_encoding=dict(offset=0.0, temperature=20),
    bbox_head=dict(type='DINOHead', loss_cls=dict(loss_weight=1.0)),
    dn_cfg=dict(
        label_noise_scale=0.5, box_noise_scale=1.0,
        group_cfg=dict(dynamic=True, num_groups=None, num_dn_queries=30)))
train_dataloader = dict(dataset=dict(times=1))
