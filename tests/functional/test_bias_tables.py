"""Resized tables of biases against a loop and SciPy's splines. (Bicubic ones, and gradients:
backbones/test_checkpoints.py, encodings/test_examples.py.)"""
import numpy as np
import pytest
import torch

from mmposenc.functional.bias_tables import RESIZINGS, resize_bias_table

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
