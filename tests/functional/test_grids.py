"""Grids, token checks and extents; sizes of the images in a batch: noted, checked, missed and cut
to; maps of tokens, and BatchNorm under a mask."""
import itertools
import warnings

import pytest
import torch
from torch import nn

from mmposenc.encodings import PEG
from mmposenc.functional import Grid, as_grid, check_tokens, key_grid, masking, valid_extents
from mmposenc.functional.image_sizes import get_img_shapes, mask_images, set_img_shapes


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
    (lambda: as_grid(50, any_axes=True), r'hw_shape=50 must be \(length,\), \(height, width\) or'),
    (lambda: PEG(4, dims=1)(torch.zeros(1, 50, 4), 50), r'hw_shape=50 must be \(length,\)'),
    (lambda: check_tokens(torch.zeros(2, 12, 4), (3, 5), 1),
     r'x has 12 tokens, but hw_shape=\(3, 5\) and num_prefix_tokens=1 need 1 \+ 3 \* 5 = 16'),
    (lambda: check_tokens(torch.zeros(12, 4), (3, 4)), r'\(B, L, C\) is required'),
    (lambda: check_tokens(torch.zeros(2, 12, 4), (3, 4), -1), 'num_prefix_tokens=-1')])
def test_what_is_no_grid_or_has_other_tokens_is_named(call, message):
    assert check_tokens(torch.zeros(2, 12, 4), (2, 5), 2).hw == (2, 5)
    with pytest.raises(ValueError, match=message):
        call()


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


def test_tokens_to_map_is_a_channels_last_view():
    tokens = torch.randn(1, 15, 4)
    feature_map = masking.tokens_to_map(tokens, (3, 5))
    assert feature_map.data_ptr() == tokens.data_ptr()
    assert feature_map.is_contiguous(memory_format=torch.channels_last)
    assert masking.map_to_tokens(feature_map).data_ptr() == tokens.data_ptr()


@pytest.mark.parametrize('options', [dict(momentum=None), dict(affine=False),
                                     dict(track_running_stats=False)])
def test_options_of_batch_norm_hold_under_a_mask(options):
    norm, reference = nn.BatchNorm2d(3, **options), nn.BatchNorm2d(3, **options)
    mask = torch.zeros(2, 4, 5, dtype=torch.bool)
    mask[:, 2:] = True
    for _ in range(3):
        x = torch.randn(2, 3, 4, 5)
        out = masking.masked_batch_norm(norm, x, mask)
        torch.testing.assert_close(out[:, :, :2], reference(x[:, :, :2]))
    torch.testing.assert_close([*norm.buffers()], [*reference.buffers()])


def test_sizes_are_checked():
    batch = set_img_shapes(torch.zeros(2, 3, 8, 8), [(8, 4), torch.tensor([3, 8])])
    assert get_img_shapes(batch, None, True) == [(8, 4), (3, 8)]
    assert get_img_shapes(batch, None, False) is None
    assert get_img_shapes(batch, [(1, 1), (2, 2)], True) == [(1, 1), (2, 2)]
    for wrong in ([(8, 8)], [(9, 8), (8, 8)], [(8, 8), (8, 9)], [(0, 8), (8, 8)],
                  [(8, 0), (8, 8)], (8, 8), torch.ones(3, 2, dtype=torch.long),
                  torch.tensor([(9, 8), (8, 8)]), torch.tensor([(8, 8), (-1, 8)])):
        with pytest.raises(ValueError, match='img_shapes(=| has shape)'):
            get_img_shapes(batch, wrong, True)
    with pytest.raises(ValueError, match='mask_padding=False; set mask_padding=True'):
        get_img_shapes(batch, [(8, 8), (8, 8)], False)


def padded(index, rows, cols):
    """Two images of 6 x 8 pixels, one of which fills only so many rows and columns."""
    batch = torch.rand(2, 3, 6, 8) + 0.1
    batch[index, :, rows:] = 0
    batch[index, :, :, cols:] = 0
    return batch


def one_dark_channel():
    batch = padded(0, 6, 8)
    batch[:, 1, -1] = 0
    batch[:, 2, :, -1] = 0
    return batch


@pytest.mark.parametrize('index', [0, 1])
@pytest.mark.parametrize(('rows', 'cols'), [(5, 8), (6, 7), (3, 3)],
                         ids=['below', 'to the right', 'both'])
def test_padding_without_sizes_is_warned_about(index, rows, cols):
    with pytest.warns(UserWarning, match='mask_padding=True, .*like padding.*DetDataPreproc'):
        assert get_img_shapes(padded(index, rows, cols), None, True) is None


@pytest.mark.parametrize('batch', [
    padded(0, 6, 8), one_dark_channel(),
    padded(0, 5, 8) - 0.5,  # padded with another number
    torch.where(torch.arange(8) > 3, padded(0, 6, 8), 0.0),  # dark at the left
    padded(0, 5, 8).requires_grad_(),  # a figure of gradients, not a batch of a detector
    set_img_shapes(padded(1, 5, 7), [(6, 8), (5, 7)])],
    ids=['full', 'one channel', 'other number', 'dark', 'gradients', 'noted'])
def test_no_warning(batch):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert get_img_shapes(batch, None, True) in (None, [(6, 8), (5, 7)])


def test_a_batch_is_cut_to_its_largest_image_and_cleared():
    batch = torch.ones(2, 1, 8, 10)
    images, mask = mask_images(batch, [(5, 4), (3, 7)], cell=2)
    assert images.shape == (2, 1, 5, 7) and images[0].sum() == 5 * 4
    # A cell is padding when its first pixel is.
    assert mask.cells.tolist() == [[[False, False, True, True]] * 3,
                                   [[False] * 4, [False] * 4, [True] * 4]]
    assert mask.extents == [(3, 2), (2, 4)]
    assert batch.eq(1).all()
    # Images of one size leave nothing to mask.
    images, mask = mask_images(batch, [(5, 4), (5, 4)], cell=2)
    assert images.shape == (2, 1, 5, 4) and mask is None
    assert mask_images(batch, None, cell=2) == (batch, None)
