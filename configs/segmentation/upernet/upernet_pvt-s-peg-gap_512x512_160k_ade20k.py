# UperNet on PVT-small with a PEG after the first block of every stage, pre-trained with average
# pooling.
# Recipe: the Twins release's 'swin setting', 160k steps of 16 images; decays neither norms nor
# encodings.
# Reference: metafile.yml; not trained here.
#
# CHECKPOINT is pcpvt_small.pth of the Twins release (github.com/Meituan-AutoML/Twins).
#
#     bash tools/dist_train.sh \
#         configs/segmentation/upernet/upernet_pvt-s-peg-gap_512x512_160k_ade20k.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'upernet_pvt-s_512x512_160k_ade20k.py'
model = dict(backbone=dict(
    pos_encoding=dict(_delete_=True, type='mmposenc.PEG'), init_cfg=None))
