"""Offsets of an axis and of pairs, entries of tables, places in a sequence."""
import pytest
import torch

from mmposenc.functional import Grid
from mmposenc.functional.buckets import BucketParams, Buckets
from mmposenc.functional.offsets import (
    axis_offsets,
    expand_offsets,
    grid_offsets,
    pair_places,
    sequence_places,
    table_entries,
)


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


def test_expand_offsets():
    query, key = Grid(2, 3), Grid(2, 3)
    rows, row_index, cols, col_index = grid_offsets(query, key)
    full = expand_offsets(rows[:, None] * 100 + cols, row_index, col_index)
    for i in range(6):
        for j in range(6):
            assert full[i, j] == (i // 3 - j // 3) * 100 + i % 3 - j % 3


@pytest.mark.parametrize('prefix', [0, 2])
@pytest.mark.parametrize('key', [Grid(4, 6), Grid(2, 3, 2.0, 2.0), Grid(3, 6, 4 / 3, 1.0),
                                 Grid(4, 4, 1.0, 1.5)])
def test_places_of_pairs_are_their_offsets(key, prefix):
    """Whole strides and others; of a pair with a prefix token any place in the table."""
    query = Grid(4, 6)
    rows, row_index, cols, col_index = grid_offsets(query, key)
    place = pair_places(query, key, prefix, torch.device('cpu'))
    found = place(torch.arange(prefix + 24)[:, None], torch.arange(prefix + key.num_cells))
    assert 0 <= int(found.min()) and int(found.max()) < len(rows) * len(cols)
    for i in range(24):
        for j in range(key.num_cells):
            row = row_index[i // 6, j // key.width]
            column = col_index[i % 6, j % key.width]
            assert found[prefix + i, prefix + j] == row * len(cols) + column


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
