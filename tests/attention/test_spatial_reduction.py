"""Weights and grids of spatial-reduction attention, and what it refuses. (Its numbers, against PVT,
MiT and Twins: backbones/test_timm.py, openmmlab/upstream/test_configs.py; with encodings
and padding: encodings/test_cellwise.py.)"""
import pytest
import torch
from helpers.tiny_backbones import randomize

from mmposenc.attention import SpatialReductionAttention


def make(dims=6, heads=2, **options):
    return randomize(SpatialReductionAttention(dims, heads, **options), 0.5).double()


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


@pytest.mark.parametrize('options, call, message', [
    (dict(sr_ratio=2), ((1, 9),), r'hw_shape=\(1, 9\) is smaller than one cell'),
    (dict(key_cells=2, rel_pos_encoding=dict(type='IRPE')), (
        (3, 3), torch.zeros(1, 3, 3, dtype=torch.bool), True), 'padding_mask and key_cells=2: ')])
def test_bad_calls_are_named(options, call, message):
    with pytest.raises(ValueError, match=message):
        make(**options)(torch.zeros(1, 9, 6, dtype=torch.float64), *call)
