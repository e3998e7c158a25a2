# Semantic FPN on PVT-micro with no position encoding, on CamVid.
#
#     python tools/train.py configs/segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py
_base_ = [
    '../../_base_/models/sem_fpn_pvt-micro.py', '../../_base_/datasets/camvid_segmentation.py',
    '../../_base_/schedules/adamw_seg_quick.py', '../../_base_/default_runtime.py']
model = dict(decode_head=dict(num_classes=11))
