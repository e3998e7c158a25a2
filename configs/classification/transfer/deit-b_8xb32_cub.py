# DeiT-B, pretrained on ImageNet, on CUB-200-2011.
# Reference: metafile.yml. Not trained here.
#
#     bash tools/dist_train.sh configs/classification/transfer/deit-b_8xb32_cub.py 8
_base_ = [
    '../../_base_/models/deit-b_transfer.py', '../../_base_/datasets/cub_200.py',
    '../../_base_/schedules/finetune_300e.py', '../../_base_/default_runtime.py']
model = dict(head=dict(num_classes=200))
