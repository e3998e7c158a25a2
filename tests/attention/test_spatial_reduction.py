"""Spatial-reduction attention against its steps written out."""
import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize

from mmposenc.attention import SpatialReductionAttention, attend


def make(dims=6, heads=2, **options):
    return randomize(SpatialReductionAttention(dims, heads, **options), 0.5).double()


def written_out(module, x, hw, x_qk=None):
    """Keys and values of cells of R x R tokens, zeros beyond the map; then attention by its
    definition, on the grid of the cells."""
    ratio, keys = module.sr_ratio, hw if module.sr_ratio == 1 else module.reduced_key_grid(hw)

    def reduce(tokens):
        if ratio == 1:
            return tokens
        maps = tokens.transpose(1, 2).unflatten(2, hw)
        if module.ceil_mode:
            maps = F.pad(maps, (0, -hw[1] % ratio, 0, -hw[0] % ratio))
        return module.norm(F.conv2d(maps, module.sr.weight, module.sr.bias, ratio).flatten(2).mT)

    def heads(tokens):
        return tokens.unflatten(2, (module.num_heads, -1)).transpose(1, 2)

    x_qk, dims, encoding = x if x_qk is None else x_qk, module.embed_dims, module.rel_pos_encoding
    grids = () if encoding is None else (encoding, hw, keys)
    out, _ = attend(heads(module.q(x_qk)), heads(module.kv(reduce(x_qk))[..., :dims]),
                    heads(module.kv(reduce(x))[..., dims:]), *grids, implementation='reference')
    return module.proj(out.transpose(1, 2).flatten(2))


@pytest.mark.parametrize('hw, options', [
    ((4, 6), dict(sr_ratio=2)), ((4, 6), dict(sr_ratio=1)), ((5, 7), dict(sr_ratio=2)),
    ((5, 7), dict(sr_ratio=2, ceil_mode=True)), ((1, 7), dict(sr_ratio=4, ceil_mode=True)),
    ((6, 1), dict(sr_ratio=1)), ((8, 8), dict(sr_ratio=4, qkv_bias=False)),
    *((hw, dict(sr_ratio=ratio, ceil_mode=ceil, dims=8, rel_pos_encoding=dict(
        type='IRPE', method=method, rpe_on='qkv'))) for hw, ratio, ceil, method in (
            ((6, 4), 2, False, 'product'), ((7, 5), 2, True, 'cross'),
            ((7, 5), 3, False, 'product'), ((4, 9), 4, True, 'euclidean'),
            ((1, 6), 1, False, 'cross')))], ids=str)
@pytest.mark.parametrize('own_qk', [False, True])
def test_equals_attention_written_out(hw, options, own_qk):
    module = make(**options)
    x = torch.randn(2, hw[0] * hw[1], module.embed_dims, dtype=torch.float64)
    x_qk = torch.randn_like(x) if own_qk else None
    torch.testing.assert_close(module(x, hw, x_qk=x_qk), written_out(module, x, hw, x_qk))


def test_weights():
    module = make(sr_ratio=2)
    x = torch.randn(1, 8, 6, dtype=torch.float64)
    out, weights = module(x, (2, 4), need_weights=True)
    torch.testing.assert_close(out, module(x, (2, 4)))
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 8, dtype=torch.float64))
    assert weights.shape == (1, 2, 8, 2)


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
    (dict(dims=5), 'embed_dims=5 must be a positive multiple of num_heads=2'),
    (dict(sr_ratio=0), 'sr_ratio=0 must be at least 1'),
    (dict(sr_ratio=2, num_prefix_tokens=1), 'num_prefix_tokens=1 with sr_ratio=2')])
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_a_grid_smaller_than_a_cell_is_named():
    with pytest.raises(ValueError, match=r'hw_shape=\(1, 9\) is smaller than one cell'):
        make(sr_ratio=2)(torch.zeros(1, 9, 6, dtype=torch.float64), (1, 9))
