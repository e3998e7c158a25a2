"""The plain transformer in windows, as SAM's image encoder and ViTDet have them."""
import torch
from helpers.tiny_backbones import randomize

from mmposenc.attention import PlainWindowAttention
from mmposenc.backbones import ViT

SIZES = dict(patch_size=4, embed_dims=16, num_layers=4, num_heads=2)
SAM = dict(**SIZES, img_size=28, pool=None, final_norm=False, window_size=3, global_blocks=(1, 3),
           mask_window_padding=False, norm_eps=1e-5, neck_channels=6,
           pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding',
                             interpolation='bicubic_antialias'),
           rel_pos_encoding=dict(type='mmposenc.DecomposedRPE'))


def test_a_table_of_windows_is_never_resized():
    """Windows have the table's own size, those that are filled up at a border and those of a padded
    image too: resizing, which blocks on the whole grid need, changes nothing in them."""
    def model(resize):
        bias = dict(type='mmposenc.RelativePositionBias', resize=resize)
        return randomize(ViT(**SIZES, img_size=16, pool=None, window_size=4, mask_padding=True,
                             rel_pos_encoding=bias)).double().eval()
    plain, resizing = model(None), model('geometric')
    images = torch.randn(2, 3, 40, 28, dtype=torch.float64)
    images[1, :, 24:] = images[1, :, :, 20:] = 0
    shapes = [(40, 28), (24, 20)]
    assert torch.equal(plain(images, shapes)[0], resizing(images, shapes)[0])
    bias = resizing.blocks[0].attn.rel_pos_encoding
    i, j = (1, 2), (3, 0)  # cells of a window of 4 x 4, whose table has 7 x 7 offsets
    row = (i[0] - j[0] + 3) * 7 + i[1] - j[1] + 3
    assert torch.equal(bias.logits(torch.zeros(1, 2, 16, 8).double(), torch.zeros(1, 2, 16, 8).
                                   double(), (4, 4))[0, :, 1 * 4 + 2, 3 * 4 + 0],
                       bias.relative_position_bias_table[row])


def test_vitdets_arch():
    """Those of SAM are compared with timm's."""
    with torch.device('meta'):
        model = ViT('vitdet-base')
    assert model.pos_encodings.encodings(-1)[0].grid_shape == (14, 14)
    for index, block in enumerate(model.blocks):
        is_global = index in (2, 5, 8, 11)
        assert isinstance(block.attn, PlainWindowAttention) != is_global
        assert len(block.attn.rel_pos_encoding.row_table) == (127 if is_global else 27)
    assert model.norm is None and model.out_indices == (11,)
