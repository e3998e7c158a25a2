# Semantic FPN on PVT-small with a PEG after the first block of every stage, pre-trained with
# average pooling.
# Recipe: the papers of PVT and Twins, 80k steps of 16 images; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
# No class token is in a segmentor, so this differs from the class-token model only in the
# classifier whose weights it starts from: the Twins release's, timm's copy (docs/weights.md).
#
#     bash tools/dist_train.sh \
#         configs/segmentation/sem_fpn/fpn_pvt-s-peg-gap_8xb2-80k_ade20k-512x512.py 8
_base_ = 'fpn_pvt-s_8xb2-80k_ade20k-512x512.py'
model = dict(backbone=dict(
    pos_encoding=dict(_delete_=True, type='mmposenc.PEG'),
    drop_path_rate=0.2,  # as the Twins release
    init_cfg=dict(
        _delete_=True, type='Pretrained', checkpoint='https://github.com/huggingface/'
        'pytorch-image-models/releases/download/v0.1-vt3p-weights/twins_pcpvt_small-e70e7e7a.pth')))
