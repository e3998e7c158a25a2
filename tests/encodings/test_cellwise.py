"""``cellwise`` tells the truth: whether a part of a grid, by itself, gets the same terms. Whatever
it says, an image in a padded batch gets what it gets alone. (In models: backbones/test_all.py,
detr/test_padding.py.)"""
from functools import partial

import examples
import pytest
import torch
from helpers.relative_checks import attend
from helpers.tiny_backbones import randomize

from mmposenc import attention
from mmposenc.encodings import CombinedRPE, LogSpacedCPB, TokenEncoding, build_encoding
from mmposenc.functional.extents import extents_to_mask, token_mask

WHOLE, PART = (4, 6), (3, 4)
HEADS, DIMS = 2, 8

@pytest.mark.parametrize('name', [*examples.RELATIVE, 'LogSpacedCPB of any grid'])
def test_part_of_a_grid(name: str) -> None:
    encoding = randomize(
        LogSpacedCPB(HEADS, hidden_dims=8) if name == 'LogSpacedCPB of any grid' else
        examples.relative(name, WHOLE, head_dims=DIMS, num_heads=HEADS), 0.5).double()
    said = encoding.cellwise
    encoding.cellwise = True  # else attention takes the part by itself
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, *WHOLE, DIMS, generator=generator, dtype=torch.float64)
               for _ in range(3))
    mask = torch.ones(1, *WHOLE, dtype=torch.bool)
    mask[:, :PART[0], :PART[1]] = False
    whole, _ = attend(q.flatten(2, 3), k.flatten(2, 3), v.flatten(2, 3), encoding, WHOLE,
                      key_padding_mask=mask.flatten(1), implementation='reference')
    whole = whole.unflatten(2, WHOLE)[:, :, :PART[0], :PART[1]]
    q, k, v = (x[:, :, :PART[0], :PART[1]].flatten(2, 3) for x in (q, k, v))
    part, _ = attend(q, k, v, encoding, PART, implementation='reference')
    same = torch.allclose(part.unflatten(2, PART), whole, atol=1e-12)
    assert same == said, (f'{name}: cellwise={said}, but a part of a grid shows {same} (or options '
                          'of SMALL hide there what the size of a grid changes)')


def attention_of(kind, prefix=1, **options):
    """An attention over cells behind a prefix token, or over maps without one."""
    sizes = dict(num_prefix_tokens=1, grid_shape=WHOLE) if prefix else {}

    def build(config):
        module = randomize(kind(16, HEADS, rel_pos_encoding=config, **sizes, **options), 0.5)
        module.double().eval()

        def run(cells, mask):
            hw = cells.shape[1:3]
            tokens = torch.cat((cells.new_ones(len(cells), prefix, 16), cells.flatten(1, 2)), 1)
            out = module(tokens, hw, token_mask(mask, 1) if prefix and mask is not None else mask)
            return out[:, :prefix], out[:, prefix:].unflatten(1, hw)
        return run
    return build


def tokens_of(config):
    """A token encoding by itself; prefix and padding come back as they were."""
    encoding = randomize(build_encoding(dict(config), TokenEncoding, 'pos_encoding', embed_dims=16,
                                        grid_shape=WHOLE), 0.5).double().eval()

    def run(cells, mask):
        hw = cells.shape[1:3]
        tokens = torch.cat((cells.new_ones(len(cells), 1, 16), cells.flatten(1, 2)), 1)
        out = encoding(tokens, hw, num_prefix_tokens=1, padding_mask=mask)
        assert torch.equal(out[:, :1], tokens[:, :1])
        out = out[:, 1:].unflatten(1, hw)
        if mask is not None:
            torch.testing.assert_close(out[mask], cells[mask], rtol=0, atol=0, equal_nan=True)
        return (out,)
    return run


REDUCED = partial(attention_of, attention.SpatialReductionAttention, prefix=0, grid_shape=WHOLE)
#: Attentions by what is special of them.
ATTENTIONS = {
    'plain': attention_of(attention.MultiheadAttention),
    'convolved': attention_of(attention.ConvProjectionAttention),
    'windows': attention_of(attention.PlainWindowAttention, window_size=2,
                            mask_window_padding=True),
    'shifted': attention_of(attention.ShiftWindowAttention, 0, window_size=2, shift_size=1),
    # Cells of several tokens, those at the border cut off; means of each image's own cells.
    'reduced': REDUCED(sr_ratio=2, ceil_mode=True),
    'reduced more': REDUCED(sr_ratio=3, ceil_mode=True), 'means': REDUCED(key_cells=2)}


@pytest.mark.parametrize('kind, name', [
    *(('tokens', name) for name in examples.TOKEN_OPTIONS),
    *(('plain', name) for name in (None, *examples.RELATIVE)),
    *((kind, name) for kind in list(ATTENTIONS)[1:] for name in (
        None, 'IRPE product qkv', 'FIRE', 'RotaryEmbedding of DINOv3', 'PaPE'))])
def test_an_image_in_a_padded_batch(kind: str, name: str | None) -> None:
    """It equals the image alone, whatever lies in the padding."""
    run = (tokens_of(examples.TOKEN_OPTIONS[name]) if kind == 'tokens' else
           ATTENTIONS[kind](name and examples.RELATIVE[name]))
    torch.manual_seed(1)
    batch = torch.randn(2, *WHOLE, 16, dtype=torch.float64)
    mask = torch.zeros(2, *WHOLE, dtype=torch.bool)
    mask[1, PART[0]:], mask[1, :, PART[1]:] = True, True
    alone = run(batch[1:, :PART[0], :PART[1]], None)
    for junk in (0., 1e2, float('nan')):
        found = run(batch.masked_fill(mask[..., None], junk), mask)
        for one, other in zip(found, alone, strict=True):
            torch.testing.assert_close(one[1:, :other.shape[1], :other.shape[2]], other)


SIZES = [(4, 5), (3, 2), (4, 1), (2, 5)]
GRID = (4, 5)
#: Positions as shares of the grid turn tokens, and pairs get a bias of theirs.
SHARES = dict(type='CombinedRPE', encodings=[
    dict(type='RotaryEmbedding', axes='yx', planes='halves', normalize='separate'),
    dict(type='FIRE', init_length=0.1)])


def shares(prefix=0, more=()):
    torch.manual_seed(0)
    return CombinedRPE([*SHARES['encodings'], *more],
                       head_dims=4, num_heads=2, num_prefix_tokens=prefix).double()


def padded(prefix):
    """A mask that does not know its extents."""
    return token_mask(extents_to_mask(SIZES, GRID, torch.device('cpu')).cells, prefix).cells


def test_masks_of_pairs_and_an_image_of_padding():
    """Whose keys and values may be NaN; and a batch without images."""
    encoding = shares(prefix=1, more=[dict(type='CoPE')])
    qkv = torch.randn(3, 4, 2, 1 + 20, 4, dtype=torch.float64)
    hidden = padded(prefix=1)
    hidden[3], qkv[1:, 3] = True, float('nan')
    none, _ = attend(*qkv[:, :0], encoding, GRID, key_padding_mask=hidden[:0])
    assert none.shape == (0, 2, 21, 4)
    seen = torch.rand(21, 21) > 0.3
    for mask in (seen.fill_diagonal_(True), torch.randn(4, 1, 21, 21).double()):
        out, weights = attend(*qkv, encoding, GRID, key_padding_mask=hidden, attn_mask=mask,
                              need_weights=True)
        assert not out[3].any() and not weights[3].any()
        assert all(x.isfinite().all() for x in torch.autograd.grad(
            out.sum(), [*encoding.parameters()], retain_graph=True))
        for image, size in enumerate(SIZES[:3]):
            cells = 1 + torch.arange(20).view(GRID)[:size[0], :size[1]].flatten()
            own = torch.cat((torch.arange(1), cells))
            alone, of_pairs = attend(
                *qkv[:, image:image + 1][..., own, :], encoding, size, need_weights=True,
                attn_mask=mask.expand(4, 1, 21, 21)[image, 0][own][:, own])
            torch.testing.assert_close(out[image:image + 1][:, :, own], alone)
            torch.testing.assert_close(weights[image][:, own][..., own], of_pairs[0])


def test_padding_that_does_not_fit():
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
    module, mask = attention.MultiheadAttention(8, 2, rel_pos_encoding=SHARES), padded(0)
    monkeypatch.setattr('mmposenc.attention.padded.is_compiling', lambda: True)
    with pytest.raises(ValueError, match='image by image, which cannot be exported'):
        module(torch.randn(4, 20, 8), GRID, mask)
