# DETR-DC5: the last stage of ResNet-50 is dilated, stride 16. Sines and cosines.
# Recipe: CPVT's first version: 50 epochs, 32 images a step.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh configs/detection/detr/detr_r50-dc5_8xb4-50e_coco.py 8
_base_ = 'detr_r50_8xb4-50e_coco.py'
# torchvision's DC5: the first block of the dilated stage is not dilated yet.
model = dict(backbone=dict(
    type='mmseg.ResNet', contract_dilation=True, strides=(1, 2, 2, 1), dilations=(1, 1, 1, 2)))
