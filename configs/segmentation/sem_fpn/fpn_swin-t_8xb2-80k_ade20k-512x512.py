# Semantic FPN on Swin-T with its table of biases.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_swin-t_8xb2-80k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/sem_fpn_pvt.py', '../../_base_/models/swin-t.py',
    '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/adamw_seg_80k.py']
train_dataloader = dict(batch_size=2)
model = dict(
    backbone=dict(_base_.swin_t, _delete_=True),
    neck=dict(in_channels=[96, 192, 384, 768]))
