"""Grids, token checks and extents."""
import pytest
import torch

from mmposenc.functional import Grid, as_grid, check_tokens, key_grid, valid_extents


def test_key_grid_places_plain_grids_over_the_query_area():
    assert key_grid((6, 8), (3, 2)) == Grid(3, 2, 2.0, 4.0)
    assert key_grid((5, 7), (2, 3)) == Grid(2, 3, 2.5, 7 / 3)
    assert key_grid((6, 8), None) == Grid(6, 8)
    placed = Grid(2, 2, 4.0, 4.0)
    assert key_grid((9, 9), placed) is placed


@pytest.mark.parametrize('hw', [(0, 3), (3, 0), (-1, 2)])
def test_empty_grid_is_named(hw):
    with pytest.raises(ValueError, match=r'hw_shape=.*must be at least \(1, 1\)'):
        as_grid(hw)


def test_grid_of_three_numbers_is_named():
    with pytest.raises(ValueError, match=r'k_grid=\(1, 2, 3\) must be'):
        as_grid((1, 2, 3), 'k_grid')


def test_token_count_names_every_number():
    x = torch.zeros(2, 12, 4)
    assert check_tokens(x, (2, 5), 2).hw == (2, 5)
    with pytest.raises(ValueError, match=r'x has 12 tokens, but hw_shape=\(3, 5\) and '
                                         r'num_prefix_tokens=1 need 1 \+ 3 \* 5 = 16'):
        check_tokens(x, (3, 5), 1)
    with pytest.raises(ValueError, match=r'\(B, L, C\) is required'):
        check_tokens(x[0], (3, 4))
    with pytest.raises(ValueError, match='num_prefix_tokens=-1'):
        check_tokens(x, (3, 4), -1)


def test_valid_extents_reads_rectangles():
    mask = torch.ones(3, 4, 5, dtype=torch.bool)
    mask[0, :2, :3] = False
    mask[1] = False
    mask[2, :1, :1] = False
    assert valid_extents(mask) == [(2, 3), (4, 5), (1, 1)]


@pytest.mark.parametrize('change', ['hole', 'empty', 'corner', 'l_shape'])
def test_valid_extents_refuses_other_shapes(change):
    mask = torch.ones(1, 4, 5, dtype=torch.bool)
    mask[0, :3, :3] = False
    if change == 'hole':
        mask[0, 1, 1] = True
    elif change == 'empty':
        mask[:] = True
    elif change == 'corner':
        mask[0, 0, 0] = True
    else:  # as many valid cells as the rectangle, in another place
        mask[0, 1, 1], mask[0, 3, 4] = True, False
    with pytest.raises(ValueError, match='padding_mask of image 0'):
        valid_extents(mask)
