"""Relative encodings against their papers' formulas, a pair of tokens at a time (rotary planes and
sums have files of their own); the released ones' goldens; what they refuse."""
import itertools
import math
import re
from pathlib import Path
from unittest import mock

import pytest
import torch
from formulas import FORMULAS, ROTATIONS, VALUES, build, cope, of
from helpers.golden_files import assert_released, load_golden
from helpers.relative_checks import (
    GRIDS,
    cells,
    check_formula,
    check_logits,
    positions,
    random_inputs,
)

from mmposenc.backbones import ViT
from mmposenc.encodings import ENCODINGS, DecomposedRPE, LookHere, QueryAbsolute1D, QueryRelative1D
from mmposenc.functional import as_grid, key_grid, rotary


@pytest.mark.parametrize('options', [dict(shared_heads=True), dict(shared_heads=False)], ids=str)
@pytest.mark.parametrize('number', range(len(GRIDS)))
def test_cope(options, number):
    encoding = build('CoPE', num_prefix_tokens=number % 2, **options)
    check_logits(encoding, cope(encoding, GRIDS[number]), *GRIDS[number])


#: Prefix tokens in turns, so that each class meets every grid with and without them.
CASES = [pytest.param(cls, options, grids, 2 * ((first + second) % 2),
                      id=f'{cls}-{options}-{grids}',
                      marks=pytest.mark.slow if first and (first + second) % 2 else ())
         for cls, (_, choices) in FORMULAS.items() for first, options in enumerate(choices)
         for second, grids in enumerate(GRIDS)]


@pytest.mark.parametrize('name, options, grids, prefix', CASES)
def test_logits(name, options, grids, prefix):
    encoding = build(name, num_prefix_tokens=prefix, **options)
    check_formula(encoding, FORMULAS[name][0], *grids)


@pytest.mark.parametrize('name, options, grids, prefix', [
    (name, options, grids, (row + column) % 2) for name, (_, choices) in ROTATIONS.items()
    for row, options in enumerate(choices) for column, grids in enumerate(GRIDS)])
def test_rotations(name, options, grids, prefix):
    encoding = build(name, num_prefix_tokens=prefix, **options)
    q, k, _ = random_inputs(encoding, *grids)
    matrix = ROTATIONS[name][0](encoding, grids[0])
    with torch.no_grad():
        turned = encoding.rotate(q, k, *grids)
        for x, found, tokens in zip((q, k), turned, positions(*grids, prefix), strict=True):
            for head, (number, token) in itertools.product(range(2), enumerate(tokens)):
                torch.testing.assert_close(found[:, head, number],
                                           x[:, head, number] @ matrix(head, token).t())
    assert not encoding.terms(as_grid(grids[0]), key_grid(*grids))


@pytest.mark.parametrize('name', ENCODINGS)
def test_every_encoding_has_a_formula(name):
    """Here, or in a file of its own."""
    assert name in FORMULAS | VALUES | ROTATIONS or any(
        re.search(rf'\b{name}\b', path.read_text())
        for path in Path(__file__).parent.glob('test_*.py')), (
        f'{name} needs a row in FORMULAS, VALUES or ROTATIONS of formulas.py, or a test_*.py')


@pytest.mark.parametrize('name, options', [
    (name, options) for name, (_, choices) in VALUES.items() for options in choices], ids=str)
@pytest.mark.parametrize('grids', GRIDS)
def test_values(name, options, grids):
    encoding = build(name, **options)
    q, k, _ = random_inputs(encoding, *grids)
    attn, expected = torch.rand(2, 2, q.shape[2], k.shape[2], dtype=q.dtype), torch.zeros_like(q)
    vector = VALUES[name][0](encoding, grids)
    for h, i, j in itertools.product(range(2), range(q.shape[2]), range(k.shape[2])):
        expected[:, h, i] += attn[:, h, i, j, None] * vector(h, i, j).detach()
    torch.testing.assert_close(encoding.values(attn, *grids), expected)
    assert encoding.logits(q, k, *grids) is None
    assert build(name).values(attn, *grids) is None


@pytest.mark.parametrize('name', ['LePE', 'CRPE'])
@pytest.mark.parametrize('grids', GRIDS)
def test_convolutions_of_values(name, grids):
    """Padded cells and those of other regions are as zeros; prefix tokens stay out."""
    encoding = build(name, num_prefix_tokens=2 * (name == 'CRPE'))
    q, _, v = random_inputs(encoding, *grids)
    p, key = encoding.num_prefix_tokens, key_grid(*grids)
    term, = encoding.terms(as_grid(grids[0]), key)
    padding = torch.rand(2, v.shape[2]) < 0.3
    regions = None if p else torch.randint(2, (1, key.num_cells))
    expected = torch.zeros_like(q)
    for b in range(2):
        for i, (r, c) in enumerate(cells(grids[0])):
            row, col = (min(int((at + 0.5) / stride), side - 1) for at, stride, side in zip(
                (r, c), key[2:4], key.hw, strict=True))
            out = term.bias.clone()
            for dy in range(-2, 3):
                for dx in range(-2, 3):
                    at, own = (row + dy) * key.width + col + dx, row * key.width + col
                    if 0 <= row + dy < key.height and 0 <= col + dx < key.width and not (
                            padding[b, p + at] or regions is not None
                            and regions[0, at] != regions[0, own]):
                        out = out + term.weight[:, 0, dy + 2, dx + 2] * v[b, :, p + at].flatten()
            expected[b, :, p + i] = out.view(2, 4) * (q[b, :, p + i] if name == 'CRPE' else 1)
    torch.testing.assert_close(term.output(q, v, padding, regions), expected)


@pytest.mark.parametrize(('q_grid', 'k_grid'), [
    ((3, 5), (3, 5)), ((7, 4), (7, 4)), ((1, 9), (1, 9)), ((6, 8), (3, 2)), ((3, 2), (6, 8)),
    ((7, 5), (3, 4))])
@pytest.mark.parametrize('shared_heads', [True, False])
def test_decomposed_is_timms(q_grid, k_grid, shared_heads):
    sam = pytest.importorskip('timm.models.vision_transformer_sam')
    encoding = DecomposedRPE(4, 2, grid_shape=(3, 5), num_prefix_tokens=2,
                             shared_heads=shared_heads)
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    got = encoding.logits(q * 4 ** -0.5, k, q_grid, k_grid)
    assert not got[:, :, :2].any() and not got[..., :2].any()
    for head in range(2):
        tables = [of(table, head) for table in (encoding.row_table, encoding.col_table)]
        expected = sam.get_decomposed_rel_pos_bias(q[:, head, 2:], *tables, q_grid, k_grid)
        torch.testing.assert_close(got[:, head, 2:, 2:], expected, atol=1e-12, rtol=1e-12)


def test_goldens_of_the_article():
    _, data = load_golden('blog_1d_6')
    q, table = data['q'], data['rel_table']
    sizes = (q.shape[-1], q.shape[1])
    absolute = QueryAbsolute1D(*sizes, max_tokens=q.shape[2])
    absolute.load_state_dict({'table': data['abs_table']})
    assert_released(absolute.logits(q, q, (2, 3)), data['abs'])
    # Of a longer table a shorter sequence uses the middle.
    for length, pad in ((q.shape[2], 0), (9, 3)):
        relative = QueryRelative1D(*sizes, max_tokens=length)
        relative.load_state_dict({'table': torch.nn.functional.pad(table, (0, 0, pad, pad))})
        for grid in ((1, 6), (2, 3)):
            assert_released(relative.logits(q, q, grid), data['rel'])


def test_lookheres_slopes_fall_with_depth():
    blocks = ViT(embed_dims=12, num_layers=3, num_heads=12, patch_size=8, img_size=16,
                 rel_pos_encoding=dict(type='LookHere')).blocks
    for block, factor in zip(blocks, (1.5, 1.0, 0.5), strict=True):
        encoding = block.attn.rel_pos_encoding
        own = torch.tensor([0.5] * 8 + [0.25, 0.0625, 0.015625, 0.00390625])
        torch.testing.assert_close(encoding.slopes, own * factor)


@pytest.mark.parametrize('heads, slopes', [
    (6, [0.5] * 4 + [0.25, 0.0625]), (9, [0.5] * 6 + [0.25, 0.0625, 0.015625])])
def test_lookheres_slopes_by_head(heads, slopes):
    """A third of the heads look everywhere; the release has models of 6 and 12 heads."""
    encoding = LookHere(heads)
    assert encoding.slopes.tolist() == slopes
    assert (encoding.sides == 0).all(-1).all(-1).sum() == heads // 3


def test_what_they_start_from():
    assert all(not table.any() for table in build('DecomposedRPE').parameters())
    names = [name for name, _ in build('TransformerXLRPE').relative_tables()]
    assert names == ['content_bias', 'position_bias']  # the projection takes weight decay
    lie, com = build('LieRE'), build('ComRoPE')
    shared = build('LieRE', shared_heads=True)
    assert (lie.generators.shape[1], shared.generators.shape[1]) == (lie.num_heads, 1)
    assert 0 <= lie.generators.min() and 6 < lie.generators.max() < 2 * math.pi
    assert {name for name, _ in com.named_parameters()} == {'generators', 'factors'}
    assert 0.8 < com.generators.std() < 1.2


def test_exponentials_for_exporters():
    skew = torch.randn(3, 8, 8, dtype=torch.float64) * 20
    skew = skew - skew.transpose(-2, -1)
    expected = torch.linalg.matrix_exp(skew)
    with mock.patch.object(rotary, 'is_exporting', return_value=True):
        torch.testing.assert_close(rotary.matrix_exp(skew), expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize('name, grid, message', [
    ('QueryAbsolute1D', (5, 6), r'k_grid=\(5, 6\) and num_prefix_tokens=1 make 31 tokens'),
    ('QueryRelative1D', (5, 6), r'q_grid=\(5, 6\) and num_prefix_tokens=1 make 31 tokens; '
                              r'the table has max_tokens=30'),
    ('QueryRelative2D', (6, 5), r'q_grid=\(6, 5\) must fit into max_size=\(5, 6\)'),
    ('UndirectedPositionBias', (6, 5), r'q_grid=\(6, 5\) must fit into window_size=\(5, 6\)'),
    ('RelativePositionBias', (6, 5), r'q_grid=\(6, 5\) must fit into window_size=\(5, 6\)')])
def test_grids_beyond_the_tables(name, grid, message):
    q = torch.zeros(1, 2, 31, 4)
    with pytest.raises(ValueError, match=message):
        build(name).logits(q, q, grid)
