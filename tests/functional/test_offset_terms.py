"""Terms by offset against loops over pairs."""
import pytest
import torch

from mmposenc.functional import Grid
from mmposenc.functional.offset_index import axis_index, pair_ids, sequence_index
from mmposenc.functional.offset_terms import skew, table_bias


@pytest.mark.parametrize('length', [1, 2, 5])
def test_skew(length):
    """Column j of row i holds offset j - i."""
    lookup = torch.arange(3.0)[:, None, None] * 1000 + torch.arange(
        float(length * (2 * length - 1))).view(length, -1)
    got = skew(lookup)
    for i in range(length):
        for j in range(length):
            assert torch.equal(got[:, i, j], lookup[:, i, j - i + length - 1])


def test_axis_index_clips_and_rounds():
    assert axis_index(3, 3, 1.0, 1.0, 1).tolist() == [[1, 2, 2], [0, 1, 2], [0, 0, 1]]
    # Keys at 0.5 and 2.5: offsets 0.5, 2.5, -0.5, 1.5, ...; halves go to the even number.
    assert axis_index(4, 2, 1.0, 2.0, 9).tolist() == [[9, 11], [9, 11], [7, 9], [7, 9]]


def test_pair_ids():
    query, key = Grid(2, 3), Grid(2, 3)
    ids = pair_ids(query, key, (1, 2), torch.device('cpu'))
    for i in range(6):
        for j in range(6):
            row, col = j // 3 - i // 3, j % 3 - i % 3
            assert ids[i, j] == (row + 1) * 5 + col + 2


def test_sequence_index_of_prefix_tokens():
    assert sequence_index(Grid(1, 2), Grid(1, 2), 1, 2, torch.device('cpu')).tolist() == [
        [2, 3, 4], [1, 2, 3], [0, 1, 2]]


def test_table_bias():
    table = torch.arange(2 * 3 * 5.0).view(2, 3, 5)
    rows, cols = torch.tensor([[0, 2], [1, 1]]), torch.tensor([[4, 0, 3]])
    got = table_bias(table, rows, cols)
    assert got.shape == (2, 2, 6)
    for i in range(2):
        for j in range(6):
            assert torch.equal(got[:, i, j], table[:, rows[i, j // 3], cols[0, j % 3]])
