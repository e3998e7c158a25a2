# PVT-medium with a PEG after the first block of every stage, pre-trained with average pooling.
# Recipe: the Twins release's 3x; decays neither norms nor encodings.
# Reference: metafile.yml; not trained here.
#
# Starts from the classifier of the Twins release, timm's copy (docs/weights.md).
#
#     bash tools/dist_train.sh \
#         configs/detection/pvt/retinanet_pvt-m-peg-gap_fpn_ms-480-800-crop-3x_coco.py 8
_base_ = 'retinanet_pvt-s-peg-gap_fpn_ms-480-800-crop-3x_coco.py'
model = dict(backbone=dict(
    arch='medium',
    init_cfg=dict(
        _delete_=True, type='Pretrained', checkpoint='https://github.com/huggingface/'
        'pytorch-image-models/releases/download/v0.1-vt3p-weights/twins_pcpvt_base-e5ecb09b.pth')))
