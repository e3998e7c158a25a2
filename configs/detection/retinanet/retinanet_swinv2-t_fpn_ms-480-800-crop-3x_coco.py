# Swin V2-T: cosine attention and a log-spaced continuous bias in windows of 8.
# Recipe: the Twins release's 3x; starts from Swin V2's classifier.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/detection/retinanet/retinanet_swinv2-t_fpn_ms-480-800-crop-3x_coco.py 8
_base_ = 'retinanet_swin-t_fpn_ms-480-800-crop-3x_coco.py'
model = dict(backbone=dict(arch='v2-tiny', init_cfg=dict(
    checkpoint='https://github.com/SwinTransformer/storage/releases/download/v2.0.0/'
    'swinv2_tiny_patch4_window8_256.pth')))
