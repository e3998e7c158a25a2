"""Rotary embedding against complex numbers in a loop, and its defining property."""
import cmath

import pytest
import torch
from relative_checks import (
    GRIDS,
    check_autocast,
    check_gradients,
    positions,
    random_inputs,
)

from mmposenc.attention import MultiheadAttention
from mmposenc.encodings import RotaryEmbedding2D


def build(mode='axial', **options):
    return RotaryEmbedding2D(8, 2, mode=mode, **{'num_prefix_tokens': 1, **options})


def turned(encoding, x, places):
    """x[b, h, token, plane] as a complex number times exp(i angle), an entry at a time."""
    out = x.clone()
    for h in range(x.shape[1]):
        for token, place in enumerate(places):
            if place is None:
                continue
            row, col = place
            for plane in range(4):
                if encoding.mode == 'axial':
                    freq = 100.0 ** (-4 * (plane % 2) / 8)
                    angle = (col if plane < 2 else row) * freq
                else:
                    freqs = encoding.freqs[:, h, plane].tolist()
                    angle = col * freqs[0] + row * freqs[1]
                turn = cmath.exp(1j * angle)
                for b in range(x.shape[0]):
                    value = complex(*x[b, h, token, 2 * plane:2 * plane + 2].tolist()) * turn
                    out[b, h, token, 2 * plane] = value.real
                    out[b, h, token, 2 * plane + 1] = value.imag
    return out


@pytest.mark.parametrize('mode', ['axial', 'mixed'])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_rotate(mode, q_grid, k_grid, num_prefix_tokens):
    encoding = build(mode, num_prefix_tokens=num_prefix_tokens)
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    queries, keys = positions(q_grid, k_grid, num_prefix_tokens)
    got_q, got_k = encoding.rotate(q, k, q_grid, k_grid)
    torch.testing.assert_close(got_q, turned(encoding, q, queries))
    torch.testing.assert_close(got_k, turned(encoding, k, keys))
    assert encoding.logits(q, k, q_grid, k_grid) is None


@pytest.mark.parametrize('mode', ['axial', 'mixed'])
def test_product_depends_on_the_offset_alone(mode):
    encoding = build(mode, num_prefix_tokens=0)
    q, k, _ = random_inputs(encoding, (4, 5), None, batch=1)
    # The same query and key in every cell.
    q, k = (x[:, :, :1].expand_as(x) for x in (q, k))
    q, k = encoding.rotate(q, k, (4, 5))
    product = (q @ k.transpose(-2, -1)).reshape(2, 4, 5, 4, 5)
    for dr in (-1, 0, 2):
        for dc in (-2, 0, 1):
            values = [product[:, r, c, r + dr, c + dc] for r in range(4) for c in range(5)
                      if 0 <= r + dr < 4 and 0 <= c + dc < 5]
            for value in values[1:]:
                torch.testing.assert_close(value, values[0])


def test_mixed_starts_as_two_perpendicular_axes():
    freqs = RotaryEmbedding2D(16, 3, mode='mixed').freqs
    assert freqs.shape == (2, 3, 8)
    magnitude = 10.0 ** (-torch.arange(0, 16, 4) / 16)
    torch.testing.assert_close(freqs.norm(dim=0), magnitude.repeat(2).expand(3, -1))
    first, second = freqs.split(4, dim=2)
    torch.testing.assert_close((first * second).sum(0), torch.zeros(3, 4), atol=1e-6, rtol=0)


def test_axial_has_no_parameters():
    assert list(build('axial').state_dict()) == []


@pytest.mark.parametrize('mode', ['axial', 'mixed'])
def test_gradients(mode):
    check_gradients(build(mode), (2, 3), None)
    check_gradients(build(mode), (4, 4), (2, 2))


@pytest.mark.parametrize('mode', ['axial', 'mixed'])
def test_autocast(mode):
    check_autocast(build(mode), (3, 4), None)


@pytest.mark.parametrize('mode', ['axial', 'mixed'])
def test_half_precision_angles_far_from_the_origin(mode):
    """Angles are computed in float32: at column 200 a bfloat16 angle would be off by 0.5."""
    encoding = build(mode, num_prefix_tokens=0)
    q, k, _ = random_inputs(encoding, (1, 201), None, batch=1, dtype=torch.float32)
    expected, _ = encoding.rotate(q, k, (1, 201))
    got, _ = encoding.rotate(q.bfloat16(), k.bfloat16(), (1, 201))
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), expected, atol=5e-2, rtol=2e-2)


@pytest.mark.parametrize(('mode', 'backend'), [('axial', 'eager'), ('mixed', 'inductor')])
def test_compiles(mode, backend):
    torch.manual_seed(0)
    module = MultiheadAttention(16, 2, num_prefix_tokens=1, rel_pos_encoding=build(mode)).eval()
    x = torch.randn(2, 13, 16)
    with torch.no_grad():
        compiled = torch.compile(module, fullgraph=True, backend=backend)
        torch.testing.assert_close(compiled(x, (3, 4)),
                                   module(x, (3, 4)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(('sizes', 'options', 'message'), [
    ((6, 2), {}, r'head_dims=6 must be a positive multiple of 4'),
    ((8, 2), dict(mode='2d'), r"mode='2d' must be 'axial' or 'mixed'"),
    ((8, 2), dict(theta=0), r'theta=0 must be > 0'),
])
def test_bad_input(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        RotaryEmbedding2D(*sizes, **options)
