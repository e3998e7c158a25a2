# UperNet on Swin V2-T: cosine attention and a log-spaced continuous bias in windows of 8.
# Recipe: that of Swin-T, 160k steps of 16 images; starts from Swin V2's classifier.
# No number known to us from a paper; not trained here.
#
#     bash tools/dist_train.sh \
#         configs/segmentation/upernet/upernet_swinv2-t_8xb2-160k_ade20k-512x512.py 8
_base_ = 'upernet_swin-t_8xb2-160k_ade20k-512x512.py'
model = dict(backbone=dict(arch='v2-tiny', init_cfg=dict(
    checkpoint='https://github.com/SwinTransformer/storage/releases/download/v2.0.0/'
    'swinv2_tiny_patch4_window8_256.pth')))
