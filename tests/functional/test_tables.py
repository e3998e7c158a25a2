"""Position tables against loops; resized tables of biases against a loop and SciPy's splines.
(Bicubic ones, and gradients: backbones/test_checkpoints.py, encodings/test_examples.py.)"""
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mmposenc.functional.bias_tables import RESIZINGS, resize_bias_table
from mmposenc.functional.position_tables import INTERPOLATIONS, resize_position_table, sincos_2d


@pytest.mark.parametrize('hw', [(3, 5), (1, 7), (6, 1), (4, 4)])
@pytest.mark.parametrize('layout', ['split', 'interleaved'])
@pytest.mark.parametrize('normalize', [False, True])
def test_sincos_is_the_formula(hw, layout, normalize):
    dims, temperature = 12, 100.0
    table = sincos_2d(hw, dims, temperature=temperature, normalize=normalize, layout=layout)
    assert table.shape == (1, hw[0] * hw[1], dims)

    def encode(index, length):
        position = (index + 1) / (length + 1e-6) * 2 * math.pi if normalize else index
        half = dims // 2
        angles = [position / temperature ** (2 * t / half) for t in range(half // 2)]
        if layout == 'split':
            return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        return [f(a) for a in angles for f in (math.sin, math.cos)]

    for row in range(hw[0]):
        for col in range(hw[1]):
            rows, cols = encode(row, hw[0]), encode(col, hw[1])
            expected = cols + rows if layout == 'split' else rows + cols
            torch.testing.assert_close(table[0, row * hw[1] + col], torch.tensor(expected))


RESIZING = [mode for mode in INTERPOLATIONS if mode != 'cut']


def interpolate(table, hw, to_hw, mode):
    """(1, C, H, W) by PyTorch."""
    kind, _, how = mode.partition('_')
    if mode == 'tile':
        return table.view(1, *hw, -1).permute(0, 3, 1, 2).tile(9, 9)[..., :to_hw[0], :to_hw[1]]
    return F.interpolate(table.view(1, *hw, -1).permute(0, 3, 1, 2), size=to_hw, mode=kind,
                         align_corners=how == 'corners', antialias=how == 'antialias')


@pytest.mark.parametrize('mode', RESIZING)
@pytest.mark.parametrize('to_hw', [(7, 3), (2, 9), (1, 4), (4, 7)])
def test_resize_keeps_rows_and_columns_apart(mode, to_hw):
    table = torch.randn(1, 4 * 6, 3, dtype=torch.float64)
    expected = interpolate(table, (4, 6), to_hw, mode)
    out = resize_position_table(table, (4, 6), to_hw, mode)
    torch.testing.assert_close(out, expected.permute(0, 2, 3, 1).flatten(1, 2))
    assert resize_position_table(table, (4, 6), (4, 6), mode) is table


def dinov2_release(table, side, to_hw):
    """The patches' part of interpolate_pos_encoding with an offset of 0.1, of a square table."""
    if to_hw == (side, side):
        return table
    scale = [(length + 0.1) / side for length in to_hw]
    out = F.interpolate(table.view(1, side, side, -1).permute(0, 3, 1, 2), scale_factor=scale,
                        mode='bicubic')
    assert out.shape[-2:] == to_hw
    return out.permute(0, 2, 3, 1).flatten(1, 2)


@pytest.mark.parametrize('to_hw', [(37, 37), (37, 50), (16, 16), (12, 41), (5, 90)])
def test_dinov2s_offset_is_that_of_its_release(to_hw):
    table = torch.randn(1, 37 * 37, 3, dtype=torch.float64)
    expected = dinov2_release(table, 37, to_hw)
    out = resize_position_table(table, (37, 37), to_hw, offset=0.1)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    # and in a batch where the largest image is another
    out = resize_position_table(table, (37, 37), (40, 95), offset=0.1,
                                extents=torch.tensor([to_hw, (40, 95)]))
    own = out[0].view(40, 95, 3)[:to_hw[0], :to_hw[1]]
    torch.testing.assert_close(own.reshape(1, -1, 3), expected, rtol=0, atol=1e-10)


#: (old grid, new grid): larger, smaller, one side kept, far larger, one cell wide, few offsets.
GRIDS = [((14, 14), (24, 24)), ((14, 14), (7, 5)), ((14, 14), (14, 20)), ((6, 9), (40, 25)),
         ((4, 6), (9, 1)), ((1, 5), (3, 7)), ((2, 2), (5, 3))]


def table_of(grid, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 2 * grid[0] - 1, 2 * grid[1] - 1, generator=generator, dtype=dtype)


def beit_offsets(side, new_side):
    """Where BEiT's release puts the old offsets of an axis, line by line as its text."""
    src, dst = 2 * side - 1, 2 * new_side - 1
    left, right = 1.01, 1.5
    while right - left > 1e-6:
        q = (left + right) / 2.0
        if (1.0 - q ** (src // 2)) / (1.0 - q) > dst // 2:
            right = q
        else:
            left = q
    distances, current = [], 1.0
    for i in range(src // 2):
        distances.append(current)
        current += q ** (i + 1)
    return np.array([-d for d in reversed(distances)] + [0.0] + distances)


@pytest.mark.parametrize(('old', 'new'), GRIDS)
def test_geometric_by_a_loop(old, new):
    """Linear between the two old offsets around each new one, the last one's value beyond them."""
    table = table_of(old)[:1]
    places = [beit_offsets(*sides) for sides in zip(old, new, strict=True)]
    by_row = [[np.interp(r, places[0], column) for r in range(1 - new[0], new[0])]
              for column in table[0].t().numpy()]
    expected = [[np.interp(c, places[1], line) for c in range(1 - new[1], new[1])]
                for line in np.array(by_row).T]
    got = resize_bias_table(table, new, 'geometric')[0]
    np.testing.assert_allclose(got.numpy(), np.array(expected), atol=1e-12)


@pytest.mark.parametrize(('old', 'new'), [pair for pair in GRIDS if min(pair[0]) > 2])
def test_cubic_equals_scipy(old, new):
    """Where the release calls SciPy's interp2d, which SciPy has no more: its splines are these."""
    interpolate = pytest.importorskip('scipy.interpolate')
    table = table_of(old)[:1]
    places = [beit_offsets(*sides) for sides in zip(old, new, strict=True)]
    spline = interpolate.RectBivariateSpline(*places, table[0].numpy(), kx=3, ky=3, s=0)
    wanted = [np.arange(1 - side, side).clip(place[0], place[-1])
              for side, place in zip(new, places, strict=True)]
    got = resize_bias_table(table, new, 'geometric-cubic')[0]
    np.testing.assert_allclose(got.numpy(), spline(*wanted), atol=1e-12)


@pytest.mark.parametrize('mode', RESIZINGS)
def test_own_grid_dtype_and_meta(mode):
    table = table_of((5, 4))
    assert resize_bias_table(table, (5, 4), mode) is table
    exact = resize_bias_table(table.bfloat16().double(), (7, 3), mode)
    half = resize_bias_table(table.bfloat16(), (7, 3), mode)
    # Computed in float32 and rounded once.
    torch.testing.assert_close(half, exact.bfloat16(), atol=2 ** -9, rtol=2 ** -8)
    assert resize_bias_table(table.to('meta'), (7, 3), mode).shape == (2, 13, 5)


@pytest.mark.parametrize('mode', ['geometric', 'geometric-cubic'])
def test_a_graph_for_many_grids_leaves_a_table_of_its_own_grid(mode):
    torch._dynamo.reset()
    table, resize = table_of((5, 4)), torch.compile(
        resize_bias_table, dynamic=True, backend='eager')
    for grid in ((7, 3), (5, 6), (9, 4), (5, 4)):
        torch.testing.assert_close(resize(table, grid, mode), resize_bias_table(table, grid, mode))
