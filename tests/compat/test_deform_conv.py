"""Deformable convolution against a loop over taps, and through mmcv's layer."""
import itertools
import math

import pytest
import torch
from torch import nn

import mmposenc  # noqa: F401  (before mmcv's operators)
from mmposenc.compat.deform_conv import deform_conv

pytest.importorskip('mmcv')


def read(plane, row, col):
    """Bilinear, zero outside."""
    total = 0.0
    for r, c in itertools.product((math.floor(row), math.floor(row) + 1),
                                  (math.floor(col), math.floor(col) + 1)):
        if 0 <= r < plane.shape[0] and 0 <= c < plane.shape[1]:
            total += (1 - abs(row - r)) * (1 - abs(col - c)) * float(plane[r, c])
    return total


def loop(x, offset, weight, stride, padding, dilation, groups, deform_groups):
    """The definition, one product at a time."""
    batch, channels = x.shape[:2]
    outputs, inside, kh, kw = weight.shape
    out = torch.zeros(batch, outputs, *offset.shape[2:], dtype=x.dtype)
    steps = offset.view(batch, deform_groups, kh, kw, 2, *offset.shape[2:])
    for b, o, c, i, j in itertools.product(range(batch), range(outputs), range(inside), range(kh),
                                           range(kw)):
        channel = o // (outputs // groups) * inside + c
        part = channel // (channels // deform_groups)
        for r, s in itertools.product(range(out.shape[2]), range(out.shape[3])):
            row = r * stride[0] - padding[0] + i * dilation[0] + steps[b, part, i, j, 0, r, s]
            col = s * stride[1] - padding[1] + j * dilation[1] + steps[b, part, i, j, 1, r, s]
            out[b, o, r, s] += weight[o, c, i, j] * read(x[b, channel], float(row), float(col))
    return out


@pytest.mark.parametrize('hw, options', [
    ((4, 5), dict(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, deform_groups=1)),
    ((5, 4), dict(stride=(2, 1), padding=(0, 1), dilation=(1, 2), groups=2, deform_groups=2)),
    ((1, 3), dict(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, deform_groups=4))])
def test_equals_the_definition(hw, options):
    torch.manual_seed(0)
    x = torch.randn(2, 4, *hw, dtype=torch.float64)
    weight = torch.randn(6, 4 // options['groups'], 3, 3, dtype=torch.float64)
    plain = nn.functional.conv2d(x, weight, None, options['stride'], options['padding'],
                                 options['dilation'], options['groups'])
    offset = torch.zeros(2, options['deform_groups'] * 18, *plain.shape[2:], dtype=x.dtype)
    torch.testing.assert_close(deform_conv(x, offset, weight, **options), plain)
    # Whole steps, which read the edges of cells, and others, far beyond the map too.
    steps = 2 * torch.randn_like(offset)
    for each in (steps.round(), steps):
        torch.testing.assert_close(deform_conv(x, each, weight, **options),
                                   loop(x, each, weight, **options))


def test_gradients_through_mmcvs_layer():
    """Of the map, the steps and the weight, which the compiled layer computes in two operators."""
    from mmcv.ops import DeformConv2dPack
    from mmcv.ops.deform_conv import deform_conv2d
    torch.manual_seed(0)
    layer = DeformConv2dPack(4, 6, 3, padding=1, stride=2, groups=2, deform_groups=2).double()
    x = torch.randn(2, 4, 5, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(layer(x), nn.functional.conv2d(
        x, layer.weight, None, 2, 1, 1, 2))  # steps start at zero
    nn.init.normal_(layer.conv_offset.weight, std=0.1)
    layer(x).square().sum().backward()
    assert all(bool(p.grad.any()) for p in (x, *layer.parameters()))
    offset = (torch.rand(2, 36, 3, 2, dtype=torch.float64) * 0.8 + 0.1).requires_grad_()

    def convolve(x, offset, weight):
        return deform_conv2d(x, offset, weight, 2, 1, 1, 2, 2)

    weight = layer.weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(convolve, (x.detach().requires_grad_(), offset, weight))


def test_torchvisions_kernel_is_called_as_torchvision_calls_it(monkeypatch):
    """Where it has one for the device; no kernel for a GPU was at hand."""
    from mmposenc.compat import deform_conv as module
    theirs = pytest.importorskip('torchvision.ops.deform_conv')
    calls = []
    monkeypatch.setattr(torch.ops.torchvision, 'deform_conv2d',
                        lambda *args: calls.append(args) or 'out', raising=False)
    monkeypatch.setattr(theirs, '_assert_has_ops', lambda: None)
    monkeypatch.setattr(module, 'has_kernel', lambda name, like: name == 'deform_conv2d')
    x, weight = torch.randn(2, 8, 5, 6), torch.randn(6, 4, 3, 2)
    offset = torch.randn(2, 2 * 2 * 3 * 2, 4, 7)
    sizes = dict(stride=(2, 1), padding=(1, 2), dilation=(1, 2))
    assert deform_conv(x, offset, weight, groups=2, deform_groups=2, **sizes) == 'out'
    theirs.deform_conv2d(x, offset, weight, **sizes)
    for own, other in zip(*calls, strict=True):
        if isinstance(own, torch.Tensor):
            torch.testing.assert_close(own, other, rtol=0, atol=0)
        else:
            assert own == other
