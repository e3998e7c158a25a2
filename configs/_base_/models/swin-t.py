# Swin-T in a detector or a segmentor, from the release's weights for ImageNet.
swin_t = dict(
    type='mmposenc.Swin', arch='tiny', drop_path_rate=0.2, mask_padding=True,
    init_cfg=dict(
        type='Pretrained',
        checkpoint='https://github.com/SwinTransformer/storage/releases/download/v1.0.0/'
        'swin_tiny_patch4_window7_224.pth'))
