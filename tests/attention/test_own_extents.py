"""An encoding that depends on the size of the grid, in padded batches: each image on its own. (Of
every encoding, whatever padding holds: encodings/test_cellwise.py.)"""

import pytest
import torch

from mmposenc.attention import MultiheadAttention, attend
from mmposenc.encodings import CombinedRPE
from mmposenc.functional import masking
from mmposenc.functional.masking import extents_to_mask, token_mask, valid_extents

SIZES = [(4, 5), (3, 2), (4, 1), (2, 5)]
GRID = (4, 5)


#: Positions as shares of the grid turn tokens, and pairs get a bias of theirs.
SHARES = dict(type='CombinedRPE', encodings=[
    dict(type='RotaryEmbedding', axes='yx', planes='halves', normalize='separate'),
    dict(type='FIRE', init_length=0.1)])


def shares(prefix=0):
    torch.manual_seed(0)
    return CombinedRPE(**{key: value for key, value in SHARES.items() if key != 'type'},
                       head_dims=4, num_heads=2, num_prefix_tokens=prefix).double()


def corner(size, prefix):
    """Numbers of an image's own tokens among those of GRID."""
    cells = torch.arange(GRID[0] * GRID[1]).view(GRID)[:size[0], :size[1]].flatten()
    return torch.cat((torch.arange(prefix), prefix + cells))


def padded(prefix):
    """A mask that does not know its extents."""
    return token_mask(extents_to_mask(SIZES, GRID, torch.device('cpu')), prefix).clone()


def test_masks_of_pairs_and_an_image_of_padding():
    torch.manual_seed(0)
    prefix = 1
    encoding = shares(prefix)
    qkv = torch.randn(3, 4, 2, prefix + 20, 4, dtype=torch.float64)
    hidden = padded(prefix)
    hidden[3] = True
    seen = torch.rand(21, 21) > 0.3
    for mask in (seen.fill_diagonal_(True), torch.randn(4, 1, 21, 21).double()):
        out, weights = attend(*qkv, encoding, GRID, key_padding_mask=hidden, attn_mask=mask,
                              need_weights=True)
        assert not out[3].any() and not weights[3].any()
        for image, size in enumerate(SIZES[:3]):
            own = corner(size, prefix)
            alone, of_pairs = attend(
                *qkv[:, image:image + 1][..., own, :], encoding, size, need_weights=True,
                attn_mask=mask.expand(4, 1, 21, 21)[image, 0][own][:, own])
            torch.testing.assert_close(out[image:image + 1][:, :, own], alone)
            torch.testing.assert_close(weights[image][:, own][..., own], of_pairs[0])


def test_extents_are_noted_on_masks():
    mask = extents_to_mask([(9, 12), (5, 7)], (9, 12), torch.device('cpu'))
    for made, scale in ((mask, 1), (masking.mask_at_step(mask, 4), 4)):
        assert masking.noted_extents(made) == [(-(-9 // scale), -(-12 // scale)),
                                               (-(-5 // scale), -(-7 // scale))]
        assert masking.noted_extents(made) == valid_extents(made)
        assert masking.noted_extents(token_mask(made, 2)) == masking.noted_extents(made)
    assert masking.noted_extents(mask.clone()) is None
    assert masking.noted_extents(token_mask(mask.clone(), 1)) is None


def test_bad_input():
    q = torch.randn(4, 2, 20, 4)
    mask = padded(0)
    with pytest.raises(ValueError, match='query_padding_mask=None, but CombinedRPE depends on'):
        attend(q, q[:, :, :6], q[:, :, :6], shares(), GRID, (2, 3), key_padding_mask=mask[:, :6])
    mask[0, 3] = True
    with pytest.raises(ValueError, match='padding_mask of image 0 has 19 valid cells'):
        attend(q, q, q, shares(), GRID, key_padding_mask=mask)
    video = shares()
    video.takes_frames = True
    with pytest.raises(ValueError, match=r'key_padding_mask of videos \(q_grid=\(2, 2, 5\)\)'):
        attend(q, q, q, video, (2, 2, 5), key_padding_mask=mask)


def test_it_can_not_be_exported(monkeypatch):
    module, mask = MultiheadAttention(8, 2, rel_pos_encoding=SHARES), padded(0)
    monkeypatch.setattr('mmposenc.attention.padded.is_compiling', lambda: True)
    with pytest.raises(ValueError, match='image by image, which cannot be exported'):
        module(torch.randn(4, 20, 8), GRID, mask)
