"""Offsets of an axis and of pairs, entries of tables, places in a sequence."""
import pytest
import torch

from mmposenc.attention.fast.flex import pair_places, with_prefix
from mmposenc.functional import Grid
from mmposenc.functional.bias_tables import table_entries
from mmposenc.functional.buckets import BucketParams, Buckets
from mmposenc.functional.grids import axis_offsets, grid_offsets, sequence_places


@pytest.mark.parametrize('sizes', [(4, 4, 1.0, 1.0), (6, 3, 1.0, 2.0), (3, 6, 2.0, 1.0),
                                   (1, 1, 1.0, 1.0), (4, 3, 1.0, 4 / 3), (5, 2, 1.0, 2.5)])
def test_axis_offsets(sizes):
    num_q, num_k, stride_q, stride_k = sizes
    values, index = axis_offsets(*sizes)
    assert bool((values.diff() > 0).all())
    for i in range(num_q):
        for j in range(num_k):
            expected = (i + 0.5) * stride_q - (j + 0.5) * stride_k
            assert float(values[index[i, j]]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize('prefix', [0, 2])
@pytest.mark.parametrize('key', [Grid(4, 6), Grid(2, 3, 2.0, 2.0), Grid(3, 6, 4 / 3, 1.0),
                                 Grid(4, 4, 1.0, 1.5)])
def test_places_of_pairs_are_their_offsets(key, prefix):
    """Whole strides and others; pairs with a prefix token have places of their own kind behind the
    table, as many as are put there."""
    query = Grid(4, 6)
    rows, row_index, cols, col_index = grid_offsets(query, key)
    place, behind = pair_places(query, key, prefix, torch.device('cpu'))
    length = len(rows) * len(cols)
    table = with_prefix(torch.arange(length)[None], torch.tensor([[-1, -2, -3], [-4, -5, -6]]),
                        behind)
    assert table.shape == (2 if prefix else 1, length + sum(behind))
    found = place(torch.arange(prefix + 24)[:, None], torch.arange(prefix + key.num_cells))
    for i in range(prefix + 24):
        for j in range(prefix + key.num_cells):
            pair = table[:, found[i, j]].tolist()
            if i < prefix:
                assert pair == ([-3, -6] if j < prefix else [-1, -4])
            elif j < prefix:
                assert pair == [-2, -5]
            else:
                a, c = i - prefix, j - prefix
                row = row_index[a // 6, c // key.width]
                column = col_index[a % 6, c % key.width]
                assert set(pair) == {int(row * len(cols) + column)}


def test_table_entries_clip_and_round():
    rows, cols = table_entries(Grid(3, 4), Grid(3, 2, 1.0, 2.0), (1, 9), torch.device('cpu'))
    assert rows.tolist() == [[1, 2, 2], [0, 1, 2], [0, 0, 1]]
    # Keys at 0.5 and 2.5: offsets 0.5, 2.5, -0.5, 1.5, ...; halves go to the even number.
    assert cols.tolist() == [[9, 11], [9, 11], [7, 9], [7, 9]]


def test_sequence_of_prefix_tokens_and_cells():
    assert sequence_places(Grid(1, 2), Grid(1, 2), 1).tolist() == [0, 1, 2]
    assert sequence_places(Grid(2, 4), Grid(1, 2, 2.0, 2.0), 1).tolist() == [0, 1, 3]
    params = BucketParams(1.0, 2.0, 2.0, 'clip')
    forth = Buckets('sequence', params, Grid(1, 2), Grid(1, 2), 1)
    assert forth.ids('cpu').tolist() == [[2, 1, 0], [3, 2, 1], [4, 3, 2]]
    back = forth._replace(reverse=True)
    assert back.ids('cpu').tolist() == [[2, 3, 4], [1, 2, 3], [0, 1, 2]]
    assert torch.equal(back.ids('cpu', slice(1, 3)), back.ids('cpu')[1:3])
