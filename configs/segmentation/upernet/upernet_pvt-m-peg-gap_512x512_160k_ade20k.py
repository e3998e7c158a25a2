# UperNet on PVT-medium with a PEG after the first block of every stage, pre-trained with average
# pooling.
# Recipe: the Twins release's 'swin setting', 160k steps of 16 images; decays neither norms nor
# encodings.
# Reference: metafile.yml; not trained here.
#
# CHECKPOINT is pcpvt_base.pth of the Twins release (github.com/Meituan-AutoML/Twins).
#
#     bash tools/dist_train.sh \
#         configs/segmentation/upernet/upernet_pvt-m-peg-gap_512x512_160k_ade20k.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'upernet_pvt-s-peg-gap_512x512_160k_ade20k.py'
model = dict(backbone=dict(arch='medium', drop_path_rate=0.3))
