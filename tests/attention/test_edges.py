"""Edges of attention: queries without keys, every kind of mask, regions; with every encoding, in
every implementation. (What stands in padding: encodings/test_cellwise.py.)"""
from dataclasses import replace

import examples
import pytest
import torch
from formulas import cope
from helpers.relative_checks import (
    CHUNKS,
    attend,
    chunks_of,
    close,
    naive_logits,
    random_inputs,
    results,
)

from mmposenc.functional import Grid
from mmposenc.functional.grids import cache_of

GRID = (3, 4)
#: Of each class one, and those whose terms differ.
NAMES = [None, *{cfg['type']: name for name, cfg in examples.RELATIVE.items()}.values(),
         'IRPE product qkv', 'ShawRPE with values', 'CombinedRPE of convolutions']


def encoded(name, prefix=0, batch=2):
    """An encoding, and random inputs of some images."""
    encoding = None if name is None else examples.relative(name, GRID, num_prefix_tokens=prefix)
    if encoding is None:
        torch.manual_seed(0)
        return None, [*torch.randn(3, batch, 2, prefix + 12, 4, dtype=torch.float64)]
    return encoding, random_inputs(encoding, GRID, None, batch=batch)


def step(encoding, inputs, **options):
    """Output and all gradients."""
    return results(encoding, inputs, encoding and GRID, **options)


def in_every_implementation(encoding, inputs, **options):
    """By the definition, and in chunks of two sizes."""
    expected = step(encoding, inputs, implementation='reference', **options)
    for cut in (CHUNKS[1], CHUNKS[3]):
        with chunks_of(**cut):
            close(step(encoding, inputs, implementation='chunked', **options), expected)
    return expected


@pytest.mark.parametrize('floating', [False, True])
@pytest.mark.parametrize('name', NAMES)
def test_a_query_without_keys_gives_zero(name, floating):
    """And others what they give without it, with gradients that are numbers; also where the keys
    that its mask leaves are padding."""
    encoding, inputs = encoded(name)
    mask = torch.ones(12, 12, dtype=torch.bool)
    mask[3], mask[5, :9] = False, False
    padding = torch.zeros(2, 12, dtype=torch.bool)
    padding[0, 8:] = True  # the last row of the map, and all that query 5 may attend to
    allowed = mask.clone()
    allowed[3] = True

    def given(mask):
        return mask if not floating else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)

    for hidden in (None, padding):
        found = in_every_implementation(encoding, inputs, attn_mask=given(mask),
                                        key_padding_mask=hidden)
        assert all(x.isfinite().all() for x in found)
        empty = [(image, 3) for image in (0, 1)] + [(0, 5)] * (hidden is not None)
        for image, query in empty:
            assert not found[0][image, :, query].any()
        others = [query for query in range(12) if query not in (3, 5)]
        expected = step(encoding, inputs, attn_mask=given(allowed), key_padding_mask=hidden)[0]
        close(found[0][:, :, others], expected[:, :, others])
    weights = attend(*inputs, encoding, encoding and GRID, attn_mask=given(mask),
                     need_weights=True)[1]
    assert not weights[:, :, 3].any() and weights.isfinite().all()


def test_a_query_whose_region_is_padding_gives_zero():
    encoding, inputs = encoded('IRPE product qkv')
    regions = torch.tensor([[0] * 8 + [1] * 4])
    padding = (regions == 1).expand(2, -1).clone()
    padding[1] = False
    found = in_every_implementation(encoding, inputs, regions=regions, key_padding_mask=padding)
    assert all(x.isfinite().all() for x in found) and not found[0][0, :, 8:].any()


@pytest.mark.parametrize('name', [None, 'IRPE product qkv'])
def test_masks_of_every_broadcastable_shape(name):
    encoding, inputs = encoded(name, prefix=1)
    length = 13
    shapes = [(), *((a, b, c, d)[start:] for start in range(4) for a in (1, 2) for b in (1, 2)
                    for c in (1, length) for d in (1, length))]
    torch.manual_seed(1)
    for shape in sorted(set(shapes)):
        for mask in (torch.rand(shape) > 0.3, torch.randn(shape, dtype=torch.float64)):
            full = mask.expand(2, 2, length, length)
            expected = step(encoding, inputs, implementation='reference', attn_mask=full)
            close(step(encoding, inputs, attn_mask=mask), expected)
            with chunks_of(**CHUNKS[1]):
                close(step(encoding, inputs, implementation='chunked', attn_mask=mask), expected)


@pytest.mark.parametrize('options, message', [
    (dict(attn_mask=torch.ones(12, 12, dtype=torch.long)), 'attn_mask has dtype torch.int64; bool'),
    (dict(attn_mask=torch.ones(12, 12, dtype=torch.uint8), need_weights=True), 'dtype torch.uint8'),
    (dict(attn_mask=torch.ones(3, 12, 12)), r'shape \(3, 12, 12\), which is not broadcastable'),
    (dict(attn_mask=torch.ones(1, 1, 1, 12, 12)), 'is not broadcastable'),
    (dict(regions=torch.zeros(3, 12, dtype=torch.long)), r'regions has shape \(3, 12\)'),
    (dict(regions=torch.zeros(2, 11, dtype=torch.long)), 'L = 12 queries = 12 keys'),
    (dict(query_padding_mask=torch.zeros(2, 12)), 'query_padding_mask has shape'),
    (dict(regions=torch.zeros(2, 12)), 'dtype torch.float32; whole numbers')])
def test_masks_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        attend(*encoded(None)[1], **options)


@pytest.mark.parametrize('prefix', [0, 5])
@pytest.mark.parametrize('name', [name for name in NAMES if name not in (
    'LePE', 'CRPE', 'CoPE per head', 'CombinedRPE of convolutions')])
def test_regions_are_a_mask_of_the_pairs_of_one_region(name, prefix):
    """In every implementation; of windows that have the same regions in turns, and of padding."""
    encoding, inputs = encoded(name, prefix, batch=4)
    regions = torch.randint(0, 3, (2, prefix + 12), generator=torch.Generator().manual_seed(3))
    regions[1] = 0
    mask = (regions[:, :, None] == regions[:, None]).repeat(2, 1, 1)[:, None]
    padding = torch.zeros(4, prefix + 12, dtype=torch.bool)
    padding[:, prefix + 5] = True
    for hidden in (None, padding) if encoding is None or encoding.cellwise else (None,):
        options = dict(regions=regions, key_padding_mask=hidden)
        expected = step(encoding, inputs, implementation='reference', attn_mask=mask,
                        key_padding_mask=hidden)
        close(in_every_implementation(encoding, inputs, **options), expected)
        for how in ('auto', 'sdpa') if name in (None, 'LogSpacedCPB') else ('auto',):
            close(step(encoding, inputs, implementation=how, **options), expected)


@pytest.mark.parametrize('prefix', [0, 4])
@pytest.mark.parametrize('name', ['LePE', 'CRPE'])
def test_convolutions_of_values_stay_in_a_region(name, prefix):
    """Upper and lower rows apart, as if each part were a map of its own."""
    encoding, inputs = encoded(name, prefix)
    regions = torch.tensor([[0] * (prefix + 4) + [1] * 8])
    found = in_every_implementation(encoding, inputs, regions=regions)[0]
    expected = attend(*inputs, attn_mask=(regions.mT == regions)[None, None])[0]
    whole, = encoding.terms(Grid(*GRID), Grid(*GRID))
    for rows, cells in ((1, slice(prefix, prefix + 4)), (2, slice(prefix + 4, None))):
        part = replace(whole, query=Grid(rows, 4), key=Grid(rows, 4), prefix=0)
        q, _, v = (x[:, :, cells] for x in inputs)
        expected[:, :, cells] += part.output(q, v)
    close(found, expected)


@pytest.mark.parametrize('prefix', [0, 2])
def test_cope_counts_the_gates_of_its_region(prefix):
    """A loop over the tokens between query and key; windows have the regions in turns."""
    encoding, (q, k, v) = encoded('CoPE', prefix, batch=6)
    regions = torch.randint(0, 2, (2, prefix + 12), generator=torch.Generator().manual_seed(3))
    in_turns = regions.repeat(3, 1)
    pair = cope(encoding, (GRID, GRID), in_turns)(q / 2, k)
    with torch.no_grad():
        logits = naive_logits(pair, q, k) + q @ k.mT / 2
    same = (in_turns[:, :, None] == in_turns[:, None])[:, None]
    expected = logits.masked_fill(~same, -torch.inf).softmax(-1) @ v
    close(in_every_implementation(encoding, [q, k, v], regions=regions)[0], expected)


@pytest.mark.parametrize('name', ['PaPE', *NAMES[1:]])
def test_torchs_default_dtype_rounds_no_offset(name):
    """bfloat16 knows no whole number between 256 and 258."""
    grid, key = (300, 1), Grid(150, 1, 2.0, 1.0)
    encoding = examples.relative(name, grid)
    inputs = random_inputs(encoding, grid, key, batch=1)
    with torch.no_grad():
        expected = attend(*inputs, encoding, grid, key, implementation='reference')[0]
        torch.set_default_dtype(torch.bfloat16)
        cache_of(torch.device('cpu')).clear()
        for how in ('reference', 'chunked'):
            found = attend(*inputs, encoding, grid, key, implementation=how)[0]
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('name', ['GTA', 'DecomposedRPE resized'])
def test_a_mask_may_hide_prefix_tokens(name):
    encoding, inputs = encoded(name, prefix=2)
    padding = torch.zeros(2, 14, dtype=torch.bool)
    padding[0, 1] = True
    assert not encoding.cellwise
    torch.testing.assert_close(
        attend(*inputs, encoding, GRID, key_padding_mask=padding)[0],
        attend(*inputs, encoding, GRID, attn_mask=~padding[:, None, None])[0])
