"""``cellwise`` tells the truth: whether a part of a grid, by itself, gets the same terms. Whatever
it says, an image in a padded batch gets what it gets alone. (In models: backbones/test_all.py,
detr/test_padding.py.)"""
import examples
import pytest
import torch
from helpers.relative_checks import attend
from helpers.tiny_backbones import randomize

from mmposenc import attention
from mmposenc.encodings import LogSpacedCPB, TokenEncoding, build_encoding
from mmposenc.functional.masking import token_mask

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


def attention_of(config, kind=attention.MultiheadAttention):
    module = randomize(kind(16, HEADS, num_prefix_tokens=1, grid_shape=WHOLE,
                            rel_pos_encoding=config), 0.5).double().eval()

    def run(cells, mask):
        tokens = torch.cat((cells.new_ones(2, 1, 16)[:len(cells)], cells.flatten(1, 2)), 1)
        out = module(tokens, cells.shape[1:3], None if mask is None else token_mask(mask, 1))
        return out[:, :1], out[:, 1:].unflatten(1, cells.shape[1:3])
    return run


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


def convolved(config):
    return attention_of(config, attention.ConvProjectionAttention)


def reduced(config, **cells):
    """Cells of several tokens, those at the border cut off."""
    cells = cells or dict(sr_ratio=2, ceil_mode=True)
    module = randomize(attention.SpatialReductionAttention(
        16, HEADS, grid_shape=WHOLE, rel_pos_encoding=config, **cells), 0.5).double().eval()

    def run(cells, mask):
        return (module(cells.flatten(1, 2), cells.shape[1:3], mask).unflatten(1, cells.shape[1:3]),)
    return run


def reduced_more(config):
    return reduced(config, sr_ratio=3, ceil_mode=True)


def means(config):
    """PVT v2's linear attention: means of each image's own cells."""
    return reduced(config, key_cells=2)


@pytest.mark.parametrize('build, name', [
    *((tokens_of, name) for name in examples.TOKEN_OPTIONS),
    *((attention_of, name) for name in (None, *examples.RELATIVE)),
    *((build, name) for build in (convolved, reduced, reduced_more, means) for name in (
        None, 'IRPE product qkv', 'FIRE', 'RotaryEmbedding of DINOv3'))])
def test_an_image_in_a_padded_batch(build, name: str | None) -> None:
    """It equals the image alone, whatever lies in the padding."""
    run = build(examples.TOKEN_OPTIONS[name] if build is tokens_of else
                None if name is None else examples.RELATIVE[name])
    torch.manual_seed(1)
    batch = torch.randn(2, *WHOLE, 16, dtype=torch.float64)
    mask = torch.zeros(2, *WHOLE, dtype=torch.bool)
    mask[1, PART[0]:], mask[1, :, PART[1]:] = True, True
    alone = run(batch[1:, :PART[0], :PART[1]], None)
    for junk in (0., 1e2, float('nan')):
        found = run(batch.masked_fill(mask[..., None], junk), mask)
        for one, other in zip(found, alone, strict=True):
            torch.testing.assert_close(one[1:, :other.shape[1], :other.shape[2]], other)
