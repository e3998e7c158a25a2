"""Definitions of terms against loops over pairs."""
import pytest
import torch

from mmposenc.attention.fast.offset_writer import offset_runs
from mmposenc.attention.terms import AxisHalves, bucket_sums, gather_buckets, skew
from mmposenc.functional import Grid
from mmposenc.functional.grids import expand_offsets, grid_offsets, pick_entries


@pytest.mark.parametrize('length', [1, 2, 5])
def test_skew(length):
    """Column j of row i holds offset j - i."""
    lookup = torch.arange(3.0)[:, None, None] * 1000 + torch.arange(
        float(length * (2 * length - 1))).view(length, -1)
    got = skew(lookup)
    for i in range(length):
        for j in range(length):
            assert torch.equal(got[:, i, j], lookup[:, i, j - i + length - 1])


def test_expand_offsets():
    table = torch.arange(2 * 3 * 5.0).view(2, 3, 5)
    rows, cols = torch.tensor([[0, 2], [1, 1]]), torch.tensor([[4, 0, 3]])
    got = expand_offsets(table, rows, cols)
    assert got.shape == (2, 2, 6)
    for i in range(2):
        for j in range(6):
            assert torch.equal(got[:, i, j], table[:, rows[i, j // 3], cols[0, j % 3]])


@pytest.mark.parametrize('query,key', [(Grid(3, 4), Grid(3, 4)), (Grid(1, 5), Grid(1, 5)),
                                       (Grid(4, 6), Grid(2, 3, 2.0, 2.0)),
                                       (Grid(2, 3, 2.0, 2.0), Grid(4, 6)),
                                       (Grid(4, 1), Grid(2, 1, 2.0, 3.0))])
def test_offset_runs_are_slices(query, key):
    """All keys of a row of queries lie one behind the other, those of the next one further up."""
    rows, row_index, cols, col_index = grid_offsets(query, key)
    table = torch.randn(2, len(rows), len(cols))
    runs = offset_runs(table, query, key)
    stride, step = int(query.stride_h), int(key.stride_h)
    for i in range(query.height):
        first = stride * (query.height - 1 - i)
        part = runs[:, :, first:first + step * (key.height - 1) + 1:step]
        for c in range(query.width):
            expected = table[:, row_index[i]][:, :, col_index[c]]
            assert torch.equal(part[:, c], expected)


def test_buckets_and_their_adjoint():
    lookup, weights = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 6)
    ids = torch.randint(5, (4, 6))
    got, sums = gather_buckets(lookup, ids), bucket_sums(weights, ids, 5)
    for i in range(4):
        for j in range(6):
            assert torch.equal(got[:, :, i, j], lookup[:, :, i, ids[i, j]])
    torch.testing.assert_close((got * weights).sum(), (lookup * sums).sum())


@pytest.mark.parametrize('heads', [(), (3,)])
def test_axis_halves(heads):
    q = torch.randn(2, 3, 6, 4, dtype=torch.double)
    rows, cols = (torch.randn(*heads, *shape, 4, dtype=torch.double)
                  for shape in ((2, 5), (3, 2)))
    got = AxisHalves(rows, cols).dense(q, q)
    for h in range(3):
        r, c = (x[h] if heads else x for x in (rows, cols))
        for i in range(6):
            for j in range(10):
                expected = q[:, h, i] @ r[i // 3, j // 2] + q[:, h, i] @ c[i % 3, j % 2]
                torch.testing.assert_close(got[:, h, i, j], expected)


def test_pick_entries():
    table, index = torch.randn(3, 7, 2), torch.randint(7, (2, 5))
    assert torch.equal(pick_entries(table, index), table[:, index])
    assert torch.equal(pick_entries(table[0], index), table[0, index])
