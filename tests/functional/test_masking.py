"""Masked maths against loops over the valid cells."""
import pytest
import torch
from torch import nn

from mmposenc.functional import masking
from mmposenc.functional.masking import extents_to_mask, masked_batch_norm
from mmposenc.functional.packing import Packing


def test_tokens_to_map_is_a_channels_last_view():
    tokens = torch.randn(1, 15, 4)
    feature_map = masking.tokens_to_map(tokens, (3, 5))
    assert feature_map.data_ptr() == tokens.data_ptr()
    assert feature_map.is_contiguous(memory_format=torch.channels_last)
    assert masking.map_to_tokens(feature_map).data_ptr() == tokens.data_ptr()


@pytest.mark.parametrize('options', [dict(momentum=None), dict(affine=False),
                                     dict(track_running_stats=False)])
def test_options_of_batch_norm_hold_under_a_mask(options):
    torch.manual_seed(0)
    norm, reference = nn.BatchNorm2d(3, **options), nn.BatchNorm2d(3, **options)
    mask = torch.zeros(2, 4, 5, dtype=torch.bool)
    mask[:, 2:] = True
    for _ in range(3):
        x = torch.randn(2, 3, 4, 5)
        out = masked_batch_norm(norm, x, mask)
        torch.testing.assert_close(out[:, :, :2], reference(x[:, :, :2]))
    torch.testing.assert_close([*norm.buffers()], [*reference.buffers()])


def test_means_are_of_valid_tokens():
    x = torch.randn(2, 6, 3)
    mask = extents_to_mask([(2, 3), (1, 2)], (2, 3), torch.device('cpu'))
    torch.testing.assert_close(masking.masked_mean(x, mask),
                               torch.stack((x[0].mean(0), x[1, :2].mean(0))))
    torch.testing.assert_close(masking.masked_mean(x, None), x.mean(1))


def test_cells_that_are_no_rectangle_have_no_grid_to_pack():
    for cell in ((0, 0), (1, 1), (1, 2)):
        mask = extents_to_mask([(2, 3), (2, 2)], (2, 3), torch.device('cpu'))
        mask[0, cell[0], cell[1]] = True
        assert Packing.of_batch(mask.flatten(1), (2, 3)) is None, cell
    assert Packing.of_batch(mask.flatten(1)).grids == ((1, 5), (1, 4))
    right = torch.ones(1, 2, 3, dtype=torch.bool)
    right[:, :, 1:] = False  # a rectangle, but not at the first cell
    assert Packing.of_batch(right.flatten(1), (2, 3)) is None
