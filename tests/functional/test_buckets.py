"""Bucket ids against the release's (golden file) and the paper's formulas cell by cell."""
import math

import pytest
import torch
from helpers.golden_files import load_golden

from mmposenc.functional import Grid, bucket_ids
from mmposenc.functional.buckets import METHODS, bucket_params, distance_rank, num_buckets

GRIDS = [(3, 5), (1, 6), (6, 1), (4, 4), (1, 1)]


def index_naive(x, alpha, beta, gamma, kind):
    """g(x) and the clip function, as iRPE writes them; truncated as its release does."""
    if kind == 'piecewise' and abs(x) > alpha:
        value = round(alpha + math.log(abs(x) / alpha) / math.log(gamma / alpha) * (beta - alpha))
    else:
        value = round(abs(x))
    return int(math.copysign(min(value, beta), x))


def naive(method, query, key, alpha, beta, gamma, kind, rank=False):
    ids = torch.zeros(query.num_cells, key.num_cells, 2, dtype=torch.long)
    middle = int(beta)
    squares = sorted({a * a + b * b for a in range(60) for b in range(60)})
    for i in range(query.num_cells):
        for j in range(key.num_cells):
            row, col = ((p // query.width + .5) * query.stride_h - (s // key.width + .5) *
                        key.stride_h if axis == 0 else
                        (p % query.width + .5) * query.stride_w - (s % key.width + .5) *
                        key.stride_w for axis, (p, s) in enumerate([(i, j), (i, j)]))
            if method in ('product', 'cross'):
                a, b = (middle + index_naive(d, alpha, beta, gamma, kind) for d in (row, col))
                ids[i, j] = torch.tensor([a, b] if method == 'cross'
                                         else [a * (2 * middle + 1) + b, 0])
                continue
            distance = row * row + col * col
            if method == 'euclidean':
                distance = round(math.sqrt(distance))
            elif rank:
                distance = max(n for n, s in enumerate(squares) if s <= round(distance))
            ids[i, j, 0] = middle + index_naive(distance, alpha, beta, gamma, kind)
    return (ids[..., 0], ids[..., 1]) if method == 'cross' else ids[..., 0]


def test_golden():
    _, data = load_golden('irpe_buckets')
    assert len(data) >= 40
    for name, expected in data.items():
        method, *axis, hw, ratio, buckets = name.split('_')
        ids = bucket_ids(method, tuple(map(int, hw.split('x'))), ratio=float(ratio[1:]))
        if method == 'cross':
            ids = ids[0 if axis == ['rows'] else 1]
        assert torch.equal(ids, expected.long()), name
        assert num_buckets(method, bucket_params(float(ratio[1:]))) == int(buckets[1:]), name


def check(query, key, method, kind, params):
    alpha, beta, gamma = params
    torch.testing.assert_close(
        bucket_ids(method, query, key, alpha=alpha, beta=beta, gamma=gamma, index=kind),
        naive(method, query, key, *params, kind))


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('kind', ['piecewise', 'clip'])
@pytest.mark.parametrize('hw', GRIDS)
@pytest.mark.parametrize('params', [(1.9, 3.8, 15.2), (1, 2, 8), (0.6, 2.3, 3.0), (2.5, 2.5, 9.0)])
def test_equals_formula(method, kind, hw, params):
    check(Grid(*hw), Grid(*hw), method, kind, params)


@pytest.mark.parametrize('method', METHODS)
@pytest.mark.parametrize('key', [Grid(2, 3, 2.0, 2.0), Grid(3, 2, 4 / 3, 3.0), Grid(6, 5, 1.0, 2.0),
                                 Grid(1, 1, 4.0, 6.0)])
def test_other_key_grid(method, key):
    """Keys that pool query cells lie at the centres of those, between cells if need be."""
    for pair in ((key, Grid(4, 6)), (Grid(4, 6), key)):
        check(*pair, method, 'piecewise', (1.9, 3.8, 15.2))


@pytest.mark.parametrize('hw', [(3, 5), (1, 9), (7, 2)])
def test_rank(hw):
    grid = Grid(*hw)
    ids = bucket_ids('quantization', hw, ratio=2.0, quantization='rank')
    assert torch.equal(ids, naive('quantization', grid, grid, 2, 4, 16, 'piecewise', rank=True))
    squared = torch.tensor([0., 1., 2., 4., 5., 8., 9., 10., 13.])
    expected = torch.arange(9.)
    assert torch.equal(distance_rank(squared), expected)
    assert torch.equal(distance_rank(squared, 20), expected)
    assert torch.equal(distance_rank(squared + 0.3), expected)
