# A linear head on a frozen, pretrained ViT-S/14, on CamVid.
#
#     python tools/prepare_data.py pretrained
#     python tools/train.py configs/segmentation/small/linear_vit-s14_1xb4-10e_camvid-252x336.py
_base_ = [
    '../../_base_/models/linear_vit-s14.py', '../../_base_/datasets/camvid_segmentation_336x252.py',
    '../../_base_/schedules/adamw_seg_quick.py', '../../_base_/default_runtime.py']
model = dict(decode_head=dict(num_classes=11))
# Five times the rate of training from random weights: at that one, ten epochs leave the thin
# classes behind (docs/results_pretrained.md).
optim_wrapper = dict(optimizer=dict(lr=0.005))
