# Deformable DETR on ResNet-50, four levels, sines and cosines.
# Recipe: Deformable DETR's, 50 epochs, 32 images a step.
# Not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/deformable_detr/deformable-detr_r50_16xb2-50e_coco.py 16
_base_ = [
    '../../_base_/models/deformable-detr_r50.py', '../../_base_/datasets/coco_detection_detr.py',
    '../../_base_/schedules/detr_50e.py', '../../_base_/default_runtime.py']

# Deformable DETR's schedule: 50 epochs, a step after 40, 32 images a step, a tenth of the rate for
# the backbone and for where the attention samples.
optim_wrapper = dict(
    optimizer=dict(lr=0.0002),
    paramwise_cfg=dict(custom_keys={
        'backbone': dict(lr_mult=0.1),
        'sampling_offsets': dict(lr_mult=0.1),
        'reference_points': dict(lr_mult=0.1)}))
train_dataloader = dict(dataset=dict(filter_cfg=dict(filter_empty_gt=False)))
