# DeiT-B, pretrained on ImageNet, on Stanford Cars.
# iRPE (ICCV 2021), supplement, Sec. 7: top-1 92.1. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/transfer/deit-b_cars.py 8
_base_ = [
    '../../_base_/models/deit-b_transfer.py', '../../_base_/datasets/stanford_cars.py',
    '../../_base_/schedules/finetune_300e.py', '../../_base_/default_runtime.py']
model = dict(head=dict(num_classes=196))
