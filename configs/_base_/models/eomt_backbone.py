# EoMT on DINOv3's ViT-S/16: queries join the last 3 blocks (the release takes 3 for this size, 4
# for larger ones).
eomt = dict(type='mmposenc.EoMT', arch='dinov3-small', query_blocks=3, mask_padding=True)
