# The segmentation quickstart's model with ContextPool behind every PEG.
#
#     python tools/train.py configs/segmentation/small/sem_fpn_pvt-micro-cp-peg_nuclei.py
_base_ = 'sem_fpn_pvt-micro-peg_nuclei.py'
model = dict(backbone=dict(pos_encoding=[
    dict(type='mmposenc.PEG'), dict(type='mmposenc.ContextPool')]))
