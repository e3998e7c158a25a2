"""LieRE and ComRoPE against rotations computed a token at a time."""
import itertools
import math
from unittest import mock

import pytest
import torch
from relative_checks import GRIDS, positions, random_inputs

from mmposenc.encodings import ComRoPE, LieRE
from mmposenc.functional import rotary
from mmposenc.functional.rotary import matrix_exp

TRAINED = (4, 3)
CASES = [(cls, options) for cls, choices in {
    LieRE: [dict(block_size=4), dict(block_size=2), dict(block_size=8, shared_heads=True)],
    ComRoPE: [dict(block_size=4), dict(method='ap', block_size=2)]}.items() for options in choices]


def build(cls, num_prefix_tokens=1, **options):
    sizes = dict(grid_shape=TRAINED) if cls is LieRE else {}
    return cls(8, 2, num_prefix_tokens=num_prefix_tokens, **sizes, **options)


def generators(encoding, head, block):
    """A and B."""
    if isinstance(encoding, LieRE):
        upper = encoding.generators[:, head % encoding.generators.shape[1], block].triu(1)
        return upper - upper.transpose(-2, -1)
    skew = encoding.generators[head, block] - encoding.generators[head, block].t()
    if encoding.method == 'ld':
        return [skew * factor for factor in encoding.factors[:, block]]
    return [skew * float(block % 2 == axis) for axis in (0, 1)]


def place(encoding, token, q_grid):
    if isinstance(encoding, ComRoPE):
        return (0.5, 0.5) if token is None else [
            (x + 0.5) / side for x, side in zip(token, q_grid, strict=True)]
    return (0.0, 0.0) if token is None else [
        x / max(side - 1, 1) * side / trained
        for x, side, trained in zip(token, q_grid, TRAINED, strict=True)]


def turned(encoding, x, tokens, q_grid):
    out, size = x.clone(), encoding.block_size
    for head, (number, token), block in itertools.product(
            range(2), enumerate(tokens), range(8 // size)):
        along, (by_row, by_col) = place(encoding, token, q_grid), generators(encoding, head, block)
        channels = slice(block * size, block * size + size)
        turn = torch.linalg.matrix_exp(along[0] * by_row + along[1] * by_col)
        out[:, head, number, channels] = x[:, head, number, channels] @ turn.t()
    return out


@pytest.mark.parametrize('cls, options, q_grid, k_grid, prefix', [
    (cls, options, *grids, (row + column) % 2) for row, (cls, options) in enumerate(CASES)
    for column, grids in enumerate(GRIDS)])
def test_rotate(cls, options, q_grid, k_grid, prefix):
    encoding = build(cls, prefix, **options)
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    with torch.no_grad():
        got = encoding.rotate(q, k, q_grid, k_grid)
        for x, one, tokens in zip((q, k), got, positions(q_grid, k_grid, prefix), strict=True):
            torch.testing.assert_close(one, turned(encoding, x, tokens, q_grid))


def test_what_they_start_from():
    lie, com = build(LieRE, block_size=8), build(ComRoPE, block_size=8)
    assert 0 <= lie.generators.min() and 6 < lie.generators.max() < 2 * math.pi
    assert {name for name, _ in com.named_parameters()} == {'generators', 'factors'}
    assert 0.8 < com.generators.std() < 1.2


def test_exponentials_for_exporters():
    skew = torch.randn(3, 8, 8, dtype=torch.float64) * 20
    skew = skew - skew.transpose(-2, -1)
    expected = torch.linalg.matrix_exp(skew)
    with mock.patch.object(rotary, 'is_exporting', return_value=True):
        torch.testing.assert_close(matrix_exp(skew), expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize('build_it, message', [
    (lambda: build(LieRE, block_size=3), r'block_size=3 must be at least 2 and divide head_dims=8'),
    (lambda: build(ComRoPE, block_size=1), r'block_size=1 must be at least 2'),
    (lambda: build(ComRoPE, block_size=8, method='ap'), r"method='ap' needs an even number")])
def test_bad_options(build_it, message):
    with pytest.raises(ValueError, match=message):
        build_it()
