"""Models of the golden files of backbones."""
from functools import partial

from mmposenc.backbones import PVT, DeiT, Swin, ViT

PVTS = dict(embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
            sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2))
VIT = dict(embed_dims=24, num_layers=2, num_heads=3, mlp_ratio=2, img_size=64,
           pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))
PEG = dict(type='mmposenc.PEG')
BILINEAR = dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')
IRPE = dict(type='mmposenc.IRPE', rpe_on='qkv')
VIT5 = partial(ViT, 'vit5-small', embed_dims=24, num_layers=2, num_heads=3, mlp_ratio=2,
               patch_size=4, img_size=16)
#: By the golden: its source, our model, and its maps with how many of them the file holds.
CASES = {
    'deit_plain': ('deit', lambda: DeiT(**VIT), None, 0),
    'deit_irpe_product_ctx_qkv': ('irpe-deit', lambda: DeiT(**VIT, rel_pos_encoding=IRPE), None, 0),
    'pvt_peg_gap_11': ('twins', lambda: PVT(**PVTS, pool='gap', pos_encoding=PEG),
                       lambda: PVT(**PVTS, pos_encoding=PEG), 4),
    'pvt_plain_21': ('pvt', lambda: PVT(**PVTS, pool='cls', img_size=64, pos_encoding=BILINEAR),
                     lambda: PVT(**PVTS, img_size=64, pos_encoding=BILINEAR), 3),
    'swin_plain_41': ('swin', lambda: Swin(embed_dims=12, num_layers=(2, 2), num_heads=(2, 3),
                                           mlp_ratio=2, window_size=4, pool='gap'), None, 0),
    'vit5': ('deit', VIT5, lambda: VIT5(pool=None, class_token=True), 1)}
