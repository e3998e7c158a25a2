"""RoIAlign, mmcv's and torchvision's, against a loop over samples."""
import math
from types import SimpleNamespace

import pytest
import torch
from helpers.operator_loops import DTYPES, naive_roi_align, random_case

import mmposenc  # noqa: F401  (before mmcv's and torchvision's operators)
from mmposenc.compat import roi_align as align_module
from mmposenc.compat.roi_align import roi_align_backward, roi_align_forward

mmcv, vision = pytest.importorskip('mmcv.ops'), pytest.importorskip('torchvision.ops')
SIZE, SCALE = (3, 2), 0.25

#: The operator and its loop; each takes a map and regions.
OPERATORS = {
    **{f'mmcv align {ratio} {aligned}': (
        lambda x, rois, ratio, aligned: mmcv.roi_align(x, rois, SIZE, SCALE, ratio, 'avg', aligned),
        lambda x, rois, *how: naive_roi_align(x, rois, SIZE, SCALE, *how), (ratio, aligned))
       for ratio in (0, 2) for aligned in (True, False)},
    **{f'torchvision align {ratio} {aligned}': (
        lambda x, rois, *how: vision.roi_align(x, rois, SIZE, SCALE, *how),
        lambda x, rois, ratio, aligned: naive_roi_align(
            x, rois, SIZE, SCALE, max(ratio, 0), aligned), (ratio, aligned))
       for ratio, aligned in ((-1, False), (2, True))}}


def case(seed, dtype, hw):
    """With a region beyond the map, two alike and one of no size."""
    x, rois = random_case(seed, dtype, hw, count=8, channels=6)
    rois[0, 1:] += 1000
    rois[1], rois[2, 3:] = rois[3], rois[2, 1:3]
    return x, rois


@pytest.mark.parametrize('hw', [(9, 6), (1, 5), (4, 1)])
@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('name', OPERATORS)
def test_equals_its_loop(name, hw, dtype, monkeypatch):
    """Maps in another order of memory; in pieces, whose gradient is that of the whole; none of
    none."""
    operator, loop, how = OPERATORS[name]
    x, rois = case(0, dtype, hw)
    tolerance = dict(atol=2e-5, rtol=1e-5) if dtype == torch.float32 else {}
    expected = loop(x, rois, *how)
    x = x.mT.contiguous().mT.requires_grad_()
    found = operator(x, rois, *how)
    torch.testing.assert_close(found, expected, **tolerance)
    grad, = torch.autograd.grad(found, x, torch.ones_like(found))
    monkeypatch.setattr(align_module, 'MAX_SAMPLES', 50)
    again = operator(x, rois, *how)
    torch.testing.assert_close(again, found)
    torch.testing.assert_close(torch.autograd.grad(again, x, torch.ones_like(again))[0], grad)
    assert operator(x, rois[:0], *how).shape == (0, *found.shape[1:])


@pytest.mark.parametrize('name', OPERATORS)
def test_gradient(name):
    operator, _, how = OPERATORS[name]
    x, rois = case(1, torch.float64, (4, 3))
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: operator(x, rois, *how), x, fast_mode=True)


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
