# UperNet on Swin-T with a PEG after the first block of each stage instead of its biases; Swin
# classifies by average pooling as it is.
# Recipe: Swin's segmentation release, 160k steps of 16 images; decays neither norms nor
# encodings.
# No number known to us from a paper; not trained here.
#
# CHECKPOINT is a classifier of configs/classification/swin/swin-t-peg_in1k.py. None was
# released: train one, or start from random weights by leaving the last two options out.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/upernet/upernet_swin-t-peg-gap_512x512_160k_ade20k.py 8 \
#         --cfg-options model.backbone.init_cfg.type=Pretrained \
#         model.backbone.init_cfg.checkpoint=CHECKPOINT
_base_ = 'upernet_swin-t_512x512_160k_ade20k.py'
model = dict(backbone=dict(
    window_bias=False, pos_encoding=dict(type='mmposenc.PEG'), init_cfg=None))
