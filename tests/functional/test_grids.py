"""Grids, token checks and extents."""
import itertools

import pytest
import torch

from mmposenc.functional import Grid, as_grid, check_tokens, key_grid, valid_extents


def test_key_grid_places_plain_grids_over_the_query_area():
    assert key_grid((6, 8), (3, 2)) == Grid(3, 2, 2.0, 4.0)
    assert key_grid((5, 7), (2, 3)) == Grid(2, 3, 2.5, 7 / 3)
    assert key_grid((6, 8), None) == Grid(6, 8)
    placed = Grid(2, 2, 4.0, 4.0)
    assert key_grid((9, 9), placed) is placed


@pytest.mark.parametrize('call, message', [
    (lambda: as_grid((0, 3)), r'hw_shape=.*must be at least \(1, 1\)'),
    (lambda: as_grid((3, 0)), r'hw_shape=.*must be at least \(1, 1\)'),
    (lambda: as_grid((1, 2, 3), 'k_grid'), r'k_grid=\(1, 2, 3\) must be'),
    (lambda: check_tokens(torch.zeros(2, 12, 4), (3, 5), 1),
     r'x has 12 tokens, but hw_shape=\(3, 5\) and num_prefix_tokens=1 need 1 \+ 3 \* 5 = 16'),
    (lambda: check_tokens(torch.zeros(12, 4), (3, 4)), r'\(B, L, C\) is required'),
    (lambda: check_tokens(torch.zeros(2, 12, 4), (3, 4), -1), 'num_prefix_tokens=-1')])
def test_what_is_no_grid_or_has_other_tokens_is_named(call, message):
    assert check_tokens(torch.zeros(2, 12, 4), (2, 5), 2).hw == (2, 5)
    with pytest.raises(ValueError, match=message):
        call()


def test_valid_extents_reads_rectangles():
    mask = torch.ones(3, 4, 5, dtype=torch.bool)
    mask[0, :2, :3] = False
    mask[1] = False
    mask[2, :1, :1] = False
    assert valid_extents(mask) == [(2, 3), (4, 5), (1, 1)]


@pytest.mark.parametrize('padding', [
    [(1, 1)], [(0, 0)], list(itertools.product(range(3), repeat=2)),
    # As many valid cells as the rectangle, in another place.
    [(1, 1), (3, 4)]], ids=['hole', 'corner', 'empty', 'l_shape'])
def test_valid_extents_refuses_other_shapes(padding):
    mask = torch.ones(1, 4, 5, dtype=torch.bool)
    mask[0, :3, :3] = False
    for row, col in padding:
        mask[0, row, col] = not mask[0, row, col]
    with pytest.raises(ValueError, match='padding_mask of image 0'):
        valid_extents(mask)
