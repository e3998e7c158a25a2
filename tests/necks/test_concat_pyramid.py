"""The concatenating neck against loops over its cells."""
from __future__ import annotations

import pytest
import torch

pytest.importorskip('mmengine')
from mmposenc.openmmlab.necks import ConcatPyramid, SimpleFeaturePyramid  # noqa: E402


def random_neck(*args, **kwargs):
    torch.manual_seed(0)
    neck = ConcatPyramid(*args, **kwargs).double()
    for parameter in neck.parameters():
        torch.nn.init.normal_(parameter)
    return neck


def maps(*channels, hw=(3, 5)):
    # Of blocks whose values differ in size and mean, as those of a transformer do.
    return [torch.randn(2, c, *hw, dtype=torch.float64) * 10 ** i + i
            for i, c in enumerate(channels)]


def by_layer(x, module):
    """LayerNorm of the channels of every cell, one cell at a time."""
    out = torch.empty_like(x)
    for b, i, j in [(b, i, j) for b in range(2) for i in range(x.shape[2])
                    for j in range(x.shape[3])]:
        cell = x[b, :, i, j]
        centred = cell - cell.mean()
        out[b, :, i, j] = (centred / (centred.square().mean() + module.eps).sqrt()
                           * module.weight + module.bias)
    return out


def by_batch(x, module):
    """BatchNorm in training: statistics of a channel over images and cells."""
    out = torch.empty_like(x)
    for c in range(x.shape[1]):
        centred = x[:, c] - x[:, c].mean()
        scale = (centred.square().mean() + module.eps).sqrt()
        out[:, c] = centred / scale * module.weight[c] + module.bias[c]
    return out


@pytest.mark.parametrize('norm, by_hand', [
    ('layer', by_layer), ('batch', by_batch), (None, lambda x, _: x)])
def test_every_map_has_a_norm_of_its_own(norm, by_hand):
    neck, inputs = random_neck((8, 4), norm=norm), maps(8, 4)
    out, = neck(inputs)
    expected = torch.cat([by_hand(x, module)
                          for x, module in zip(inputs, neck.norms, strict=True)], 1)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def test_levels_are_the_simple_pyramid_of_a_projection():
    neck, inputs = random_neck((8, 4), 12, scales=(2, 1, 0.5), num_outs=4), maps(8, 4, hw=(4, 6))
    outs = neck(inputs)
    x = torch.cat([by_layer(x, module)
                   for x, module in zip(inputs, neck.norms, strict=True)], 1)
    x = (torch.einsum('bchw,oc->bohw', x, neck.project.weight[:, :, 0, 0])
         + neck.project.bias[:, None, None])
    pyramid = SimpleFeaturePyramid(12, 12, scales=(2, 1, 0.5), num_outs=4).double()
    pyramid.load_state_dict(neck.pyramid.state_dict())
    for out, expected in zip(outs, pyramid((x,)), strict=True):
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    assert [tuple(out.shape[2:]) for out in outs] == [(8, 12), (4, 6), (2, 3), (1, 2)]


@pytest.mark.parametrize('arguments', [
    dict(), dict(norm='batch'), dict(out_channels=12, scales=(4, 2, 1, 0.5), num_outs=5)])
def test_every_parameter_and_every_map_gets_a_gradient(arguments):
    neck = random_neck((8, 8), **arguments)
    inputs = [x.requires_grad_() for x in maps(8, 8, hw=(4, 4))]
    sum((out * torch.randn_like(out)).sum() for out in neck(inputs)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in neck.parameters())
    assert all(x.grad.abs().sum() > 0 for x in inputs)


@pytest.mark.parametrize('arguments, message', [
    (dict(in_channels=8), 'in_channels=8 must list the channels of every map'),
    (dict(in_channels=()), r'in_channels=\(\) must list'),
    (dict(norm='LN'), "norm='LN' must be 'layer', 'batch' or None"),
    (dict(scales=(2, 1)), r'scales=\(2, 1\), num_outs=None: .* need out_channels'),
    (dict(num_outs=2), r'num_outs=2: .* need out_channels'),
    (dict(out_channels=8, scales=(1, 2)), r'scales=\(1, 2\) must be some of')])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ConcatPyramid(**{'in_channels': (8, 8), **arguments})


@pytest.mark.parametrize('inputs', [maps(8), maps(8, 4), maps(8, 8) + maps(8),
                                    maps(8) + maps(8, hw=(3, 4))])
def test_maps_that_do_not_fit(inputs):
    with pytest.raises(ValueError, match=r'must be maps of one size with in_channels=\(8, 8\)'):
        ConcatPyramid((8, 8)).double()(inputs)
