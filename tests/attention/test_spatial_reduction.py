"""Weights and grids of spatial-reduction attention, and what it refuses. (Its numbers, against PVT,
MiT and Twins: backbones/test_timm.py, openmmlab/upstream/test_configs.py; with encodings
and padding: encodings/test_cellwise.py.)"""
import pytest
import torch
from helpers.tiny_backbones import randomize

from mmposenc.attention import SpatialReductionAttention


def make(dims=6, heads=2, **options):
    return randomize(SpatialReductionAttention(dims, heads, **options), 0.5).double()


def test_weights_of_images_that_are_computed_alone():
    """Each image's are those without padding; padded tokens have none."""
    module = make(dims=8, key_cells=2, rel_pos_encoding=dict(type='IRPE', rpe_on='qkv'))
    x = torch.randn(2, 20, 8, dtype=torch.float64)
    mask = torch.ones(2, 4, 5, dtype=torch.bool)
    sizes = (4, 5), (2, 3)
    for image, (height, width) in enumerate(sizes):
        mask[image, :height, :width] = False
    out, weights = module(x, (4, 5), mask, need_weights=True)
    torch.testing.assert_close(out, module(x, (4, 5), mask))
    expected = torch.zeros(2, 2, 4, 5, 4, dtype=torch.float64)
    for image, (height, width) in enumerate(sizes):
        alone = x[image].view(4, 5, 8)[:height, :width].reshape(1, -1, 8)
        own = module(alone, (height, width), need_weights=True)[1]
        expected[image, :, :height, :width] = own[0].unflatten(1, (height, width))
    torch.testing.assert_close(weights, expected.flatten(2, 3))


def test_key_positions_are_the_centres_of_the_cells():
    grid = make(sr_ratio=4).reduced_key_grid((9, 13))
    assert (grid.height, grid.width) == (2, 3)
    assert [(i + 0.5) * grid.stride_h - 0.5 for i in range(2)] == [1.5, 5.5]


@pytest.mark.parametrize('options, message', [
    (dict(sr_ratio=0), 'sr_ratio=0 must be at least 1'),
    (dict(sr_ratio=2, num_prefix_tokens=1), 'num_prefix_tokens=1 with sr_ratio=2')])
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_grid_smaller_than_a_cell_is_named():
    with pytest.raises(ValueError, match=r'hw_shape=\(1, 9\) is smaller than one cell'):
        make(sr_ratio=2)(torch.zeros(1, 9, 6, dtype=torch.float64), (1, 9))
