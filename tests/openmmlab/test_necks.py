"""The pyramids for backbones of one stride against their steps written out."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize

from mmposenc.detr import MultiScaleProjector
from mmposenc.openmmlab.necks import ConcatPyramid, SimpleFeaturePyramid


def drawn(cls, *args, **kwargs):
    neck = cls(*args, **kwargs).double()
    randomize(neck, 1.0)
    return neck


def maps(*channels, hw=(3, 5)):
    # Of blocks whose values differ in size and mean, as those of a transformer do.
    return [torch.randn(2, c, *hw, dtype=torch.float64) * 10 ** i + i
            for i, c in enumerate(channels)]


def by_layer(x, module):
    """Norms of cells."""
    return F.layer_norm(x.movedim(1, -1), x.shape[1:2], module.weight, module.bias,
                        module.eps).movedim(-1, 1)


def by_batch(x, module):
    """In training: statistics of a channel over images and cells."""
    return F.batch_norm(x, None, None, module.weight, module.bias, True, eps=module.eps)


def by_hand(level, scale, x):
    modules = list(level)
    if scale == 0.5:
        x = F.max_pool2d(x, 2)
    if scale == 4:
        x = F.conv_transpose2d(x, modules[0].weight, modules[0].bias, 2)
        x = F.gelu(by_layer(x, modules[1]))
    if scale >= 2:
        x = F.conv_transpose2d(x, modules[-5].weight, modules[-5].bias, 2)
    one, norm_one, three, norm_three = modules[-4:]
    x = by_layer(F.conv2d(x, one.weight), norm_one)
    return by_layer(F.conv2d(x, three.weight, padding=1), norm_three)


@pytest.mark.parametrize('hw', [(4, 6), (5, 3), (2, 2)])
def test_levels_are_the_papers(hw):
    neck = drawn(SimpleFeaturePyramid, 8, 12, num_outs=6)
    x = torch.randn(2, 8, *hw, dtype=torch.float64)
    outs = neck((x,))
    for level, scale, out in zip(neck.levels, (4, 2, 1, 0.5), outs, strict=False):
        torch.testing.assert_close(out, by_hand(level, scale, x), rtol=1e-10, atol=1e-10)
    for before, out in zip(outs[3:], outs[4:], strict=False):
        assert torch.equal(out, before[:, :, ::2, ::2])


@pytest.mark.parametrize('kind, by_hand', [
    ('layer', by_layer), ('batch', by_batch), (None, lambda x, _: x)])
def test_every_map_has_a_norm_of_its_own(kind, by_hand):
    neck, inputs = drawn(ConcatPyramid, (8, 4), norm=kind), maps(8, 4)
    out, = neck(inputs)
    expected = torch.cat([by_hand(x, module)
                          for x, module in zip(inputs, neck.norms, strict=True)], 1)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def test_levels_are_the_simple_pyramid_of_a_projection():
    neck = drawn(ConcatPyramid, (8, 4), 12, scales=(2, 1, 0.5), num_outs=4)
    inputs = maps(8, 4, hw=(4, 6))
    outs = neck(inputs)
    x = torch.cat([by_layer(x, module)
                   for x, module in zip(inputs, neck.norms, strict=True)], 1)
    x = (torch.einsum('bchw,oc->bohw', x, neck.project.weight[:, :, 0, 0])
         + neck.project.bias[:, None, None])
    pyramid = SimpleFeaturePyramid(12, 12, scales=(2, 1, 0.5), num_outs=4).double()
    pyramid.load_state_dict(neck.pyramid.state_dict())
    torch.testing.assert_close(outs, pyramid((x,)), rtol=1e-10, atol=1e-10)
    assert [tuple(out.shape[2:]) for out in outs] == [(8, 12), (4, 6), (2, 3), (1, 2)]


@pytest.mark.parametrize('neck, inputs, message', [
    *((neck((8, 8)), inputs, r'must be maps of the same size with in_channels=\(8')
      for neck in (ConcatPyramid, MultiScaleProjector)
      for inputs in (maps(8), maps(8, 4), maps(8, 8, 8), maps(8) + maps(8, hw=(3, 4)))),
    (SimpleFeaturePyramid(8), maps(8, 8), 'inputs holds 2 maps.*one number in out_indices')])
def test_maps_that_do_not_fit(neck, inputs, message):
    with pytest.raises(ValueError, match=message):
        neck.double()(inputs)
