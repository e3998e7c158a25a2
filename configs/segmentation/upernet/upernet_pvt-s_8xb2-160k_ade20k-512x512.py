# UperNet on PVT-small with a learned position table in every stage.
# Recipe: the Twins release's 'swin setting', 160k steps of 16 images; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/upernet/upernet_pvt-s_8xb2-160k_ade20k-512x512.py 8
_base_ = [
    '../../_base_/models/upernet_pvt.py', '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/schedules/adamw_seg_160k.py']
train_dataloader = dict(batch_size=2)
model = dict(backbone=dict(arch='small', drop_path_rate=0.2, init_cfg=dict(
    type='Pretrained',
    checkpoint='https://github.com/whai362/PVT/releases/download/v2/pvt_small.pth')))
