# The quickstart's model and schedule on blood cells.
#
#     python tools/train.py configs/detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py
_base_ = [
    '../../_base_/models/retinanet_pvt-micro-peg.py',
    '../../_base_/datasets/bccd_detection.py',
    '../../_base_/schedules/adamw_quick.py', '../../_base_/default_runtime.py']
model = dict(bbox_head=dict(num_classes=3))
