# Deformable DETR on one level of stride 16: the last stage is dilated (DC5).
# Recipe: Deformable DETR's, 50 epochs, 32 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/deformable_detr/deformable-detr_r50-dc5_16xb2-50e_coco.py 16
_base_ = 'deformable-detr_r50-ss_16xb2-50e_coco.py'
# torchvision's DC5: the first block of the dilated stage is not dilated yet.
model = dict(backbone=dict(
    type='mmseg.ResNet', contract_dilation=True, strides=(1, 2, 2, 1), dilations=(1, 1, 1, 2)))
