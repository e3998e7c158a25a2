"""RoIAlign against a loop over samples; deformable attention without mmcv's kernels; focal losses
of single logits."""
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmposenc.compat import roi_align as align_module
from mmposenc.compat.deform_attn import ms_deform_attn_backward
from mmposenc.compat.focal_loss import sigmoid_focal_loss_backward, sigmoid_focal_loss_forward
from mmposenc.compat.roi_align import roi_align_backward, roi_align_forward

mmcv = pytest.importorskip('mmcv.ops')
SIZE, SCALE = (3, 2), 0.25
#: Samples of a bin along an axis (0: by the size of the region), and whether cells' centres lie at
#: one half.
WAYS = pytest.mark.parametrize('ratio, aligned', [(0, True), (0, False), (2, True), (2, False)])


def bilinear(image, y, x):
    """(C,) at a point: held at the edge of the map, zero a cell beyond it."""
    channels, height, width = image.shape
    if y < -1 or y > height or x < -1 or x > width:
        return torch.zeros(channels, dtype=image.dtype)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    return (image[:, top, left] * float((1 - y + top) * (1 - x + left))
            + image[:, top, right] * float((1 - y + top) * (x - left))
            + image[:, bottom, left] * float((y - top) * (1 - x + left))
            + image[:, bottom, right] * float((y - top) * (x - left)))


def sample_points(roi, size, scale, sampling_ratio, aligned, dtype):
    """The points of every bin: a list of (y, x) for each."""
    number = {torch.float32: np.float32, torch.float64: np.float64}[dtype]
    half = number(0.5 if aligned else 0)
    x1, y1, x2, y2 = (number(float(v)) * number(scale) - half for v in roi[1:])
    height, width = y2 - y1, x2 - x1
    if not aligned:
        height, width = max(height, number(1)), max(width, number(1))
    bin_h, bin_w = height / number(size[0]), width / number(size[1])
    rows = sampling_ratio or math.ceil(np.float32(bin_h))
    columns = sampling_ratio or math.ceil(np.float32(bin_w))
    return [[(y1 + number(i) * bin_h + number(r + .5) * bin_h / number(rows),
              x1 + number(j) * bin_w + number(c + .5) * bin_w / number(columns))
             for r in range(rows) for c in range(columns)]
            for i in range(size[0]) for j in range(size[1])]


def naive_roi_align(input, rois, size, scale, sampling_ratio, aligned):
    """(K, C, h, w): means of the samples of each bin."""
    output = torch.zeros(len(rois), input.size(1), *size, dtype=input.dtype)
    for k, roi in enumerate(rois):
        points = sample_points(roi, size, scale, sampling_ratio, aligned, input.dtype)
        for bin, at in enumerate(points):
            values = [bilinear(input[int(roi[0])], y, x) for y, x in at]
            if values:
                output[k, :, bin // size[1], bin % size[1]] = torch.stack(values).mean(0)
    return output


def random_case(seed, dtype, hw):
    """A map of two images, and regions that reach beyond it on every side; one lies beyond it, two
    are alike, and one has no size."""
    generator = torch.Generator().manual_seed(seed)
    input = torch.randn(2, 6, *hw, generator=generator, dtype=dtype)
    image = torch.randint(2, (8, 1), generator=generator).to(dtype)
    span = torch.tensor([hw[1], hw[0]]) * 4.0
    centres = torch.rand(8, 2, generator=generator, dtype=dtype) * span * 1.4 - span * 0.2
    extents = torch.rand(8, 2, generator=generator, dtype=dtype) * span * 0.8
    rois = torch.cat([image, centres - extents / 2, centres + extents / 2], 1)
    rois[0, 1:] += 1000
    rois[1], rois[2, 3:] = rois[3], rois[2, 1:3]
    return input, rois


@pytest.mark.parametrize('hw', [(9, 6), (1, 5), (4, 1)])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@WAYS
def test_equals_its_loop(ratio, aligned, hw, dtype):
    """Maps in another order of memory; no regions."""
    x, rois = random_case(0, dtype, hw)
    tolerance = dict(atol=2e-5, rtol=1e-5) if dtype == torch.float32 else {}
    expected = naive_roi_align(x, rois, SIZE, SCALE, ratio, aligned)
    x = x.mT.contiguous().mT
    found = mmcv.roi_align(x, rois, SIZE, SCALE, ratio, 'avg', aligned)
    torch.testing.assert_close(found, expected, **tolerance)
    with torch.autocast('cpu', torch.bfloat16):
        assert torch.equal(mmcv.roi_align(x, rois, SIZE, SCALE, ratio, 'avg', aligned), found)
    assert mmcv.roi_align(x, rois[:0], SIZE, SCALE, ratio).shape == (0, *found.shape[1:])


@WAYS
def test_gradient(ratio, aligned):
    x, rois = random_case(1, torch.float64, (4, 3))
    assert torch.autograd.gradcheck(lambda x: mmcv.roi_align(
        x, rois, SIZE, SCALE, ratio, 'avg', aligned), x.requires_grad_(), fast_mode=True)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    x, rois = random_case(5, torch.float32, (6, 7))
    x, rois = x.to(dtype).requires_grad_(), rois.to(dtype).float()
    single = x.detach().float().requires_grad_()
    found, expected = (mmcv.roi_align(each, rois, SIZE, SCALE) for each in (x, single))
    assert found.dtype == dtype and torch.equal(found, expected.to(dtype))
    grad = torch.randn_like(found)
    assert torch.equal(torch.autograd.grad(found, x, grad)[0],
                       torch.autograd.grad(expected, single, grad.float())[0].to(dtype))


@pytest.mark.parametrize('roi, message', [
    ([2, 0, 0, 4, 4], r'rois\[:, 0\] must be image indices in \[0, 2\), got 2'),
    ([-1, 0, 0, 4, 4], r'rois\[:, 0\] must be image indices in \[0, 2\)'),
    ([0, 0, math.nan, 4, 4], 'rois must have .* no NaN, got')])
def test_bad_regions_are_errors(roi, message):
    with pytest.raises(ValueError, match=message):
        mmcv.roi_align(torch.randn(2, 3, 4, 5), torch.tensor([roi]).float(), (2, 2))


def test_arguments_that_do_not_fit_are_errors():
    x, rois = random_case(2, torch.float64, (4, 5))
    rois = rois[:1]
    rois[0, 1] = rois[0, 3] + 1
    with pytest.raises(ValueError, match='rois must have x2 >= x1 and y2 >= y1'):
        mmcv.roi_align(x, rois, SIZE)
    with pytest.raises(NotImplementedError, match="pool_mode='avg', or build mmcv:"):
        mmcv.roi_align(x, rois, SIZE, SCALE, 2, 'max')


def test_torchvisions_kernel_is_taken_where_it_has_loaded(monkeypatch):
    """Averages on an accelerator."""
    maps, rois = torch.randn(2, 3, 6, 7), torch.tensor([[1.0, 0.0, 1.0, 9.0, 12.0]])
    options = (2, 2, 0.5, 2, 1, True)
    nothing = torch.empty(0)
    out, grad = torch.empty(1, 3, 2, 2), torch.zeros_like(maps)
    roi_align_forward(maps, rois, out, nothing, nothing, *options)
    roi_align_backward(out, rois, nothing, nothing, grad, *options)

    def forward(input, rois, scale, height, width, ratio, aligned):
        assert (scale, height, width, ratio, aligned) == (0.5, 2, 2, 2, True)
        return out + 1

    def backward(given, rois, scale, height, width, *rest):
        assert rest == (2, 3, 6, 7, 2, True)
        return grad + 1

    monkeypatch.setattr(torch.ops, 'torchvision',
                        SimpleNamespace(roi_align=forward, _roi_align_backward=backward))
    monkeypatch.setattr(align_module, 'has_kernel', lambda name, like: True)
    again, total = torch.empty_like(out), torch.zeros_like(maps)
    roi_align_forward(maps, rois, again, nothing, nothing, *options)
    roi_align_backward(out, rois, nothing, nothing, total, *options)
    assert torch.equal(again, out + 1) and torch.equal(total, grad + 1)


def test_gradients_of_deformable_attention_through_mmcv():
    """The function mmcv calls on a GPU, with this in the place of its kernels; its buffers need not
    be zero."""
    from mmcv.ops.multi_scale_deform_attn import (
        MultiScaleDeformableAttnFunction,
        multi_scale_deformable_attn_pytorch,
    )
    shapes, starts = torch.tensor([(3, 5), (1, 4), (2, 1)]), torch.tensor([0, 15, 19])
    value = torch.randn(2, 21, 2, 3, dtype=torch.float64)
    locations = torch.rand(2, 4, 2, 3, 2, 2, dtype=torch.float64) * 1.4 - 0.2
    weights = torch.rand(2, 4, 2, 3, 2, dtype=torch.float64)
    inputs = tuple(x.requires_grad_() for x in (value, locations, weights))

    def attention(value, locations, weights):
        return MultiScaleDeformableAttnFunction.apply(value, shapes, starts, locations, weights, 64)
    assert torch.autograd.gradcheck(attention, inputs)
    output = attention(*inputs)
    torch.testing.assert_close(output, multi_scale_deformable_attn_pytorch(
        value, shapes, locations, weights))
    grad = torch.randn_like(output)
    buffers = [torch.full_like(x, 7) for x in inputs]
    with torch.no_grad():
        ms_deform_attn_backward(value, shapes, starts, locations, weights, grad, *buffers,
                                im2col_step=64)
    torch.testing.assert_close(buffers, [*torch.autograd.grad(output, inputs, grad)])


def naive_loss(x, is_target, gamma, alpha):
    """Focal loss of one logit and its derivative, in Python floats."""
    p = 1 / (1 + math.exp(-x))
    if is_target:
        slope = (1 - p) ** gamma * (1 - p - gamma * p * math.log(p))
        return -alpha * (1 - p) ** gamma * math.log(p), -alpha * slope
    slope = p ** gamma * (p - gamma * (1 - p) * math.log(1 - p))
    return -(1 - alpha) * p ** gamma * math.log(1 - p), (1 - alpha) * slope


def run(input, target, gamma=2.0, alpha=0.25):
    output, grad, weight = torch.zeros_like(input), torch.zeros_like(input), input.new_empty(0)
    sigmoid_focal_loss_forward(input, target, weight, output, gamma=gamma, alpha=alpha)
    sigmoid_focal_loss_backward(input, target, weight, grad, gamma=gamma, alpha=alpha)
    return output, grad


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('gamma, alpha', [(2.0, 0.25), (0.0, 0.5), (1.5, 0.9)])
def test_focal_losses_are_those_of_single_logits(dtype, gamma, alpha):
    generator = torch.Generator().manual_seed(0)
    input = torch.randn(9, 4, generator=generator, dtype=dtype) * 3
    target = torch.randint(0, 5, (9,), generator=generator)  # 4: background
    expected = torch.zeros(2, 9, 4, dtype=dtype)
    for n in range(9):
        for c in range(4):
            pair = naive_loss(input[n, c].item(), target[n].item() == c, gamma, alpha)
            expected[:, n, c] = torch.tensor(pair, dtype=dtype)
    tolerance = dict(atol=1e-6, rtol=1e-5) if dtype == torch.float32 else {}
    torch.testing.assert_close(torch.stack(run(input, target, gamma, alpha)), expected, **tolerance)
    assert run(input[:0], target[:0])[1].shape == (0, 4)


def test_focal_losses_through_mmcv():
    """It multiplies by the gradient it is given: of single losses, checked for ones alone."""
    input = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1, 2, 3, 1])
    mmcv.sigmoid_focal_loss(input, target, 2.0, 0.25, None, 'none').sum().backward()
    torch.testing.assert_close(input.grad, run(input.detach(), target)[1])
    for reduction in ('mean', 'sum'):
        assert torch.autograd.gradcheck(
            lambda x, how=reduction: mmcv.sigmoid_focal_loss(x, target, 2.0, 0.25, None, how),
            (input,))
    with pytest.raises(NotImplementedError, match='weights of classes .* need an mmcv with'):
        mmcv.sigmoid_focal_loss(input, target, 2.0, 0.25, torch.ones(3), 'none')


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_focal_losses_of_large_logits_stay_exact(dtype):
    input = torch.tensor([[-1e4, 1e4, -200.0]], dtype=dtype)
    output, grad = run(input, torch.tensor([0]))
    torch.testing.assert_close(output, torch.tensor([[2500.0, 7500.0, 0]], dtype=dtype))
    torch.testing.assert_close(grad, torch.tensor([[-0.25, 0.75, 0]], dtype=dtype))
