# A small PVT with a PEG in every stage, in Semantic FPN, on nuclei; from random weights in a few
# minutes on two CPU cores. The data: mmposenc prepare nuclei
_base_ = [
    '../../_base_/models/sem_fpn_pvt-micro.py', '../../_base_/datasets/nuclei_segmentation.py',
    '../../_base_/schedules/adamw_seg_quick.py', '../../_base_/default_runtime.py']
model = dict(
    data_preprocessor=dict(mean=[30.0, 30.0, 30.0], std=[25.0, 25.0, 25.0]),  # of dark images
    backbone=dict(pos_encoding=dict(_delete_=True, type='mmposenc.PEG')))
