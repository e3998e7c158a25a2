"""Masked maths against loops over the valid cells."""
import pytest
import torch
from torch import nn

from mmposenc.functional import masking
from mmposenc.functional.masking import extents_to_mask, masked_batch_norm, masked_group_norm
from mmposenc.functional.packing import Packing


def test_tokens_to_map_is_a_channels_last_view():
    tokens = torch.randn(1, 15, 4)
    feature_map = masking.tokens_to_map(tokens, (3, 5))
    assert feature_map.data_ptr() == tokens.data_ptr()
    assert feature_map.is_contiguous(memory_format=torch.channels_last)
    assert masking.map_to_tokens(feature_map).data_ptr() == tokens.data_ptr()
    for row in range(3):
        for col in range(5):
            torch.testing.assert_close(feature_map[0, :, row, col], tokens[0, row * 5 + col])


def test_extents_to_mask_marks_the_padding():
    mask = extents_to_mask([(2, 3), (3, 1)], (3, 4), torch.device('cpu'))
    for image, (height, width) in enumerate([(2, 3), (3, 1)]):
        for row in range(3):
            for col in range(4):
                assert bool(mask[image, row, col]) == (row >= height or col >= width)
    assert extents_to_mask([(3, 4)], (3, 4), torch.device('cpu')) is None


def test_norms_that_gather_over_processes_do_so_themselves():
    """A class of its own may know more than its own cells: it is called, with the valid ones."""
    class Gathering(nn.BatchNorm2d):
        def forward(self, x):
            self.seen = x.shape
            return super().forward(x)

    torch.manual_seed(0)
    x, mask = torch.randn(2, 3, 4, 5), torch.zeros(2, 4, 5, dtype=torch.bool)
    mask[0, 2:] = True
    norm, plain = Gathering(3), nn.BatchNorm2d(3)
    torch.testing.assert_close(masked_batch_norm(norm, x, mask), masked_batch_norm(plain, x, mask))
    assert norm.seen == (1, 3, 30, 1)
    torch.testing.assert_close([*norm.buffers()], [*plain.buffers()])


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


def test_masked_mean_and_pad_map():
    mask = torch.tensor([[0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 0]]).bool()
    x = torch.randn(2, 6, 3).masked_fill(mask[..., None], float('nan'))
    torch.testing.assert_close(masking.masked_mean(x, mask),
                               torch.stack((x[0, [0, 1, 3, 4]].mean(0), x[1].mean(0))))
    padded = masking.pad_map(torch.ones(1, 1, 2, 3), (4, 3))
    assert padded.sum() == 6 and padded.shape == (1, 1, 4, 3) and padded[0, 0, 2:].sum() == 0


def test_group_norm_sees_valid_cells_only():
    norm = torch.nn.GroupNorm(2, 6).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 6, 5, 7, dtype=torch.float64) + 3
    mask = torch.zeros(2, 5, 7, dtype=torch.bool)
    mask[0, 3:] = mask[0, :, 4:] = True
    out = masked_group_norm(norm, x.masked_fill(mask[:, None], float('nan')), mask)
    torch.testing.assert_close(out[:1, :, :3, :4], norm(x[:1, :, :3, :4]))
    torch.testing.assert_close(out[1:], norm(x[1:]))
    assert not out[0, :, 3:].any() and not out[0, :, :, 4:].any()
    assert masked_group_norm(norm, x, None).equal(norm(x))
    leaf = x[:1, :, :4, :4].clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda value: masked_group_norm(norm, value, mask[:1, :4, :4]), (leaf,), fast_mode=True)


def test_cells_that_are_no_rectangle_have_no_grid_to_pack():
    for cell in ((0, 0), (1, 1), (1, 2)):
        mask = extents_to_mask([(2, 3), (2, 2)], (2, 3), torch.device('cpu'))
        mask[0, cell[0], cell[1]] = True
        assert Packing.of_batch(mask.flatten(1), (2, 3)) is None, cell
    assert Packing.of_batch(mask.flatten(1)).grids == ((1, 5), (1, 4))
    right = torch.ones(1, 2, 3, dtype=torch.bool)
    right[:, :, 1:] = False  # a rectangle, but not at the first cell
    assert Packing.of_batch(right.flatten(1), (2, 3)) is None
