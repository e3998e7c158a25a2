"""Deformable convolution, plain and modulated, against a loop over taps, and in mmcv's layers."""
import math

import pytest
import torch
from compat_loops import CASES, ONE, deform_case, deform_loop
from torch import nn

import mmposenc  # noqa: F401  (before mmcv's operators)
from mmposenc.operators import deform_conv as module
from mmposenc.operators.deform_conv import Sizes, deform_conv, gradients


@pytest.mark.parametrize('hw, sizes', CASES)
def test_equals_the_definition(hw, sizes):
    x, steps, mask, weight = deform_case(hw, sizes, outputs=2)
    plain = nn.functional.conv2d(x, weight, None, *sizes[:4])
    torch.testing.assert_close(deform_conv(x, 0 * steps, None, weight, sizes), plain)
    # Whole steps, which read the edges of cells, and others, far beyond the map too.
    for each in (steps.round(), steps):
        expected = deform_loop(x, each, torch.ones_like(mask), weight, sizes)
        torch.testing.assert_close(deform_conv(x, each, None, weight, sizes), expected)
    torch.testing.assert_close(deform_conv(x, steps, mask, weight, sizes),
                               deform_loop(x, steps, mask, weight, sizes))


def test_steps_of_zero_are_a_convolution_to_the_last_bit():
    """In float32, where every layer of mmdet starts: taps read cells, not between them, and the
    derivative is the one to the right, as the compiled kernels have it."""
    x, steps, _, weight = deform_case((13, 21), ONE, dtype=torch.float32)
    weight = weight * 0
    weight[:4, :, 1, 1] = torch.eye(4)
    assert torch.equal(deform_conv(x, 0 * steps, None, weight, ONE)[:, :4], x)
    grad = torch.zeros(2, 6, 13, 21)
    grad[:, 0] = 1
    found = gradients(x, 0 * steps, None, weight, grad, ONE, 'offset')['offset']
    right = nn.functional.pad(x[:, 0], (0, 1))[..., 1:] - x[:, 0]
    assert torch.equal(found[:, 2 * 4 + 1], right)


def test_one_cell_before_the_map():
    """Nothing is read, and mmcv's kernels have no derivative there."""
    x, weight = torch.tensor([[[[3.0, 5.0]]]]), torch.ones(1, 1, 1, 1)
    steps = torch.tensor([0.0, -1.0]).view(1, 2, 1, 1).expand(1, 2, 1, 2)
    sizes = Sizes((1, 1), (0, 0), (1, 1), 1, 1)
    assert deform_conv(x, steps, None, weight, sizes)[0, 0, 0].tolist() == [0, 3]
    found = gradients(x, steps, None, weight, torch.ones(1, 1, 1, 2), sizes, 'offset')
    assert found['offset'][0, 1, 0].tolist() == [0.0, 2.0]
    far = torch.tensor([math.nan, math.inf, -math.inf, 1e30]).view(1, 2, 1, 2)
    assert not deform_conv(x, far, None, weight, sizes).any()
    found = gradients(x, far, None, weight, torch.ones(1, 1, 1, 2), sizes, 'x offset')
    assert not found['x'].any() and not found['offset'].any()


@pytest.mark.parametrize('modulated', [False, True])
def test_gradients_through_mmcvs_layers(modulated):
    """Of the map, the steps and the weight, which the compiled layer computes in two operators."""
    ops = pytest.importorskip('mmcv.ops')
    torch.manual_seed(0)
    pack, operator = (ops.ModulatedDeformConv2dPack, ops.modulated_deform_conv2d) if (
        modulated) else (ops.DeformConv2dPack, ops.deform_conv2d)
    layer = pack(4, 6, 3, padding=1, stride=2, groups=2, deform_groups=2).double()
    x = torch.randn(2, 4, 5, 4, dtype=torch.float64, requires_grad=True)
    bias = layer.bias if modulated else None
    torch.testing.assert_close(layer(x), nn.functional.conv2d(  # steps start at zero, factors at .5
        x, layer.weight * (0.5 if modulated else 1), bias, 2, 1, 1, 2))
    nn.init.normal_(layer.conv_offset.weight, std=0.1)
    layer(x).square().sum().backward()
    assert all(bool(p.grad.any()) for p in (x, *layer.parameters()))
    offset, mask = torch.rand(2, 36, 3, 2).to(x) * 0.8 + 0.1, torch.rand(2, 18, 3, 2).to(x)
    given = [each.detach().clone().requires_grad_() for each in (
        (x, offset, mask, layer.weight, bias) if modulated else (x, offset, layer.weight))]
    assert torch.autograd.gradcheck(lambda *tensors: operator(*tensors, 2, 1, 1, 2, 2), given,
                                    fast_mode=True)


def test_larger_steps_are_read_as_flat_memory():
    """As mmdet's DyHead passes them to mmcv's kernel: image by image from the start."""
    pytest.importorskip('mmcv')
    from mmcv.ops import modulated_deform_conv2d
    x, steps, mask, weight = deform_case((4, 5), ONE)
    large = torch.randn(2, 18, 8, 9, dtype=x.dtype, requires_grad=True)
    factors = torch.rand(2, 9, 8, 9, dtype=x.dtype, requires_grad=True)
    first = large.detach().flatten(1)[:, :18 * 20].reshape(2, 18, 4, 5)
    own = factors.detach().flatten(1)[:, :9 * 20].reshape(2, 9, 4, 5)
    out = modulated_deform_conv2d(x, large, factors, weight, None, 1, 1)
    torch.testing.assert_close(out, deform_loop(x, first, own, weight, ONE))
    out.sum().backward()
    assert not large.grad.flatten(1)[:, 18 * 20:].any()
    expected = gradients(x, first, own, weight, torch.ones_like(out), ONE, 'offset mask')
    torch.testing.assert_close(large.grad.flatten(1)[:, :18 * 20], expected['offset'].flatten(1))
    torch.testing.assert_close(factors.grad.flatten(1)[:, :9 * 20], expected['mask'].flatten(1))
    with pytest.raises(ValueError, match=r'offset must have shape \(2, 18, 4, 5\), got'):
        modulated_deform_conv2d(x, steps[..., :4], mask, weight, None, 1, 1)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    tensors = [each.to(dtype) for each in deform_case((4, 5), ONE)]
    single = deform_conv(*(each.float() for each in tensors), ONE)
    assert torch.equal(deform_conv(*tensors, ONE), single.to(dtype))
    grad = torch.randn_like(single).to(dtype)
    found = gradients(*tensors, grad, ONE, 'x offset mask weight')
    exact = gradients(*(each.float() for each in tensors), grad.float(), ONE,
                      'x offset mask weight')
    for name, value in found.items():
        torch.testing.assert_close(value, exact[name].to(dtype))


def test_pieces_views_and_no_images(monkeypatch):
    """One image at a time and tensors in another order of memory are the same; none is none."""
    tensors = deform_case((5, 4), CASES[1][1], batch=3)
    whole = deform_conv(*tensors, CASES[1][1])
    grad = torch.randn_like(whole)
    expected = gradients(*tensors, grad, CASES[1][1], 'x offset mask weight')
    monkeypatch.setattr(module, 'MAX_COLUMNS', 1)
    other = [each.contiguous(memory_format=torch.channels_last) for each in tensors]
    torch.testing.assert_close(deform_conv(*other, CASES[1][1]), whole)
    found = gradients(*other, grad, CASES[1][1], 'x offset mask weight')
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    x, steps, mask, weight = tensors
    assert deform_conv(x[:0], steps[:0], mask[:0], weight, CASES[1][1]).shape == (0, 6, 2, 2)
    none = gradients(x[:0], steps[:0], mask[:0], weight, grad[:0], CASES[1][1], 'x weight')
    assert none['x'].shape == (0, 4, 5, 4) and not none['weight'].any()


@pytest.mark.parametrize('change, message', [
    (dict(groups=4), r'weight must have C / groups channels .* got \(6, 4, 3, 3\) with groups=4'),
    (dict(deform_groups=3), 'deform_groups must divide the channels of x, got 3 and 4 channels'),
    (dict(padding=(0, 0), dilation=(4, 4)), 'x must not be smaller than the kernel, got'),
    (dict(stride=(2, 2)), r'offset must have shape \(2, 18, 2, 3\), got \(2, 18, 4, 5\)')])
def test_what_does_not_belong_together_is_an_error(change, message):
    with pytest.raises(ValueError, match=message):
        deform_conv(*deform_case((4, 5), ONE), ONE._replace(**change))


def test_torchvisions_kernel_is_called_as_torchvision_calls_it(monkeypatch):
    """Where it has one for the device; no kernel for a GPU was at hand."""
    theirs = pytest.importorskip('torchvision.ops.deform_conv')
    calls = []
    monkeypatch.setattr(torch.ops.torchvision, 'deform_conv2d',
                        lambda *args: calls.append(args) or torch.zeros(2), raising=False)
    monkeypatch.setattr(theirs, '_assert_has_ops', lambda: None)
    monkeypatch.setattr(module, 'has_kernel', lambda name, like: name == 'deform_conv2d')
    x, weight = torch.randn(2, 8, 5, 6), torch.randn(6, 4, 3, 2)
    offset, mask = torch.randn(2, 2 * 2 * 3 * 2, 3, 7), torch.rand(2, 2 * 3 * 2, 3, 7)
    for factors in (None, mask):
        deform_conv(x, offset, factors, weight, Sizes((2, 1), (1, 1), (1, 1), 2, 2))
        theirs.deform_conv2d(x, offset, weight, None, (2, 1), (1, 1), (1, 1), factors)
    for own, other in zip(calls[0] + calls[2], calls[1] + calls[3], strict=True):
        if isinstance(own, torch.Tensor):
            torch.testing.assert_close(own, other, rtol=0, atol=0)
        else:
            assert own == other
