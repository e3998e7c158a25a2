# UperNet on PVT-small with a PEG after the first block of every stage, pre-trained with average
# pooling.
# Recipe: the Twins release's 'swin setting', 160k steps of 16 images; decays neither norms nor
# encodings.
# Reference: metafile.yml; not trained here.
#
# Starts from the classifier of the Twins release, timm's copy (docs/weights.md).
#
#     bash tools/dist_train.sh \
#         configs/segmentation/upernet/upernet_pvt-s-peg-gap_8xb2-160k_ade20k-512x512.py 8
_base_ = 'upernet_pvt-s_8xb2-160k_ade20k-512x512.py'
model = dict(backbone=dict(
    pos_encoding=dict(_delete_=True, type='mmposenc.PEG'),
    init_cfg=dict(
        _delete_=True, type='Pretrained', checkpoint='https://github.com/huggingface/'
        'pytorch-image-models/releases/download/v0.1-vt3p-weights/twins_pcpvt_small-e70e7e7a.pth')))
