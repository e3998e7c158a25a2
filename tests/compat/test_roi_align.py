import math

import pytest
import torch
from compat_checks import DEVICES, DTYPES
from compat_loops import naive_roi_align, random_case

from mmposenc.compat import roi_align as module
from mmposenc.compat.roi_align import roi_align_backward, roi_align_forward

ATOL = {torch.float32: 2e-5, torch.float64: 1e-12}


def run(input, rois, size, scale, sampling_ratio, pool_mode, aligned, grad_output):
    """The same through the two functions, with the buffers mmcv allocates."""
    output = input.new_zeros(len(rois), input.size(1), *size)
    argmax = [torch.zeros_like(output) if pool_mode == 0 else input.new_zeros(0) for _ in 'yx']
    options = dict(aligned_height=size[0], aligned_width=size[1], spatial_scale=scale,
                   sampling_ratio=sampling_ratio, pool_mode=pool_mode, aligned=aligned)
    roi_align_forward(input, rois, output, *argmax, **options)
    grad_input = torch.zeros_like(input)
    roi_align_backward(grad_output.to(output), rois, *argmax, grad_input, **options)
    return output, grad_input


@pytest.mark.parametrize('device', DEVICES)
@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('hw', [(9, 6), (1, 5), (4, 1), (1, 1)])
@pytest.mark.parametrize('sampling_ratio', [0, 2])
@pytest.mark.parametrize('pool_mode', [0, 1])
@pytest.mark.parametrize('aligned', [True, False])
def test_equals_naive_loop(device, dtype, hw, sampling_ratio, pool_mode, aligned):
    input, rois, grad = random_case(0, dtype, hw)
    args = ((3, 2), 0.25, sampling_ratio, pool_mode, aligned, grad)
    expected = naive_roi_align(input, rois, *args)
    for actual, naive in zip(run(input.to(device), rois.to(device), *args), expected,
                             strict=True):
        torch.testing.assert_close(actual.cpu(), naive, atol=ATOL[dtype], rtol=1e-5)


@pytest.mark.parametrize('pool_mode', [0, 1])
def test_whole_numbers_land_on_pixels(pool_mode):
    """Unaligned bins of one pixel sampled once, at half-way points: means of four pixels."""
    input = torch.arange(20.).view(1, 1, 4, 5)
    rois = torch.tensor([[0., 1, 1, 4, 3]])
    output, _ = run(input, rois, (2, 3), 1.0, 1, pool_mode, False, torch.ones(1, 1, 2, 3))
    means = (input[..., :-1, :-1] + input[..., 1:, :-1] + input[..., :-1, 1:]
             + input[..., 1:, 1:]) / 4
    torch.testing.assert_close(output, means[:, :, 1:3, 1:4])


@pytest.mark.parametrize('pool_mode', [0, 1])
def test_no_regions(pool_mode):
    output, grad = run(torch.randn(2, 3, 4, 5), torch.zeros(0, 5), (2, 2), 1.0, 0, pool_mode, True,
                       torch.zeros(0, 3, 2, 2))
    assert output.shape == (0, 3, 2, 2) and not grad.any()


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('pool_mode', [0, 1])
def test_identical_regions_and_one_of_no_size(dtype, pool_mode):
    input, rois, grad = random_case(3, dtype, (6, 7), count=4)
    rois[1:] = rois[0]
    rois[3, 3:] = rois[3, 1:3]  # no size: no sample is taken
    args = ((3, 2), 0.25, 0, pool_mode, True, grad)
    output, grad_input = run(input, rois, *args)
    assert torch.equal(output[0], output[1]) and torch.equal(output[0], output[2])
    assert bool((output[3] == (0 if pool_mode else -10000)).all())
    torch.testing.assert_close(grad_input, naive_roi_align(input, rois, *args)[1],
                               atol=ATOL[dtype], rtol=1e-5)


@pytest.mark.parametrize('pool_mode', ['avg', 'max'])
@pytest.mark.parametrize('aligned', [True, False])
def test_gradcheck_through_mmcv(pool_mode, aligned):
    pytest.importorskip('mmcv')
    from mmcv.ops import roi_align
    input, rois, _ = random_case(1, torch.float64, (5, 7), count=4)
    input.requires_grad_()

    def pooled(x):
        return roi_align(x, rois, (3, 2), 0.25, 0, pool_mode, aligned)

    assert torch.autograd.gradcheck(pooled, (input,))


@pytest.mark.parametrize('pool_mode', [0, 1])
def test_pieces_give_the_same_as_one_pass(pool_mode, monkeypatch):
    input, rois, grad = random_case(2, torch.float64, (12, 9), count=30)
    whole = run(input, rois, (3, 2), 0.25, 0, pool_mode, True, grad)
    monkeypatch.setattr(module, 'MAX_SAMPLES', 50)
    grid = module.make_grid(rois, 2, (3, 2), 0.25, 0, True)
    pieces = module.chunks(grid, 6)
    assert len(pieces) > 5
    assert [i for piece in pieces for i in range(30)[piece]] == list(range(30))
    for actual, expected in zip(run(input, rois, (3, 2), 0.25, 0, pool_mode, True, grad), whole,
                                strict=True):
        torch.testing.assert_close(actual, expected)


def test_10000_regions():
    input, rois, grad = random_case(4, torch.float32, (20, 30), count=10000, size=(2, 2))
    output, grad_input = run(input, rois, (2, 2), 0.25, 2, 1, True, grad)
    some = torch.arange(0, 10000, 500)
    expected, _ = naive_roi_align(input, rois[some], (2, 2), 0.25, 2, 1, True, grad[some])
    torch.testing.assert_close(output[some], expected, atol=2e-5, rtol=1e-5)
    # The adjoint: <grad, pool(input)> = <adjoint(grad), input>.
    torch.testing.assert_close((output.double() * grad).sum(), (grad_input.double() * input).sum(),
                               rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    input, rois, grad = random_case(5, torch.float32, (6, 7))
    args = ((3, 2), 0.25, 0, 1, True)
    output, grad_input = run(input.to(dtype), rois, *args, grad)
    single = run(input.to(dtype).float(), rois, *args, grad.to(dtype).float())
    assert output.dtype == dtype
    assert torch.equal(output, single[0].to(dtype))
    assert torch.equal(grad_input, single[1].to(dtype))


@pytest.mark.parametrize('roi, message', [
    ([2, 0, 0, 4, 4], r'rois\[:, 0\] must be image indices in \[0, 2\), got 2 to 2'),
    ([-1, 0, 0, 4, 4], r'rois\[:, 0\] must be image indices in \[0, 2\)'),
    ([0, 5, 0, 4, 4], r'rois must have x2 >= x1 and y2 >= y1 and no NaN, got \[0.0, 5.0'),
    ([0, 0, math.nan, 4, 4], 'rois must have x2 >= x1 and y2 >= y1 and no NaN'),
])
def test_bad_regions_are_errors(roi, message):
    with pytest.raises(ValueError, match=message):
        run(torch.randn(2, 3, 4, 5), torch.tensor([roi], dtype=torch.float32), (2, 2), 1.0, 0, 1,
            True, torch.zeros(1, 3, 2, 2))


def test_torchvisions_kernel_is_taken_where_it_has_loaded(monkeypatch):
    """Averages on an accelerator; backwards only where sums may come in any order."""
    from types import SimpleNamespace

    from mmposenc.compat import roi_align as module
    maps, rois = torch.randn(2, 3, 6, 7), torch.tensor([[1.0, 0.0, 1.0, 9.0, 12.0]])
    options = (2, 2, 0.5, 2, 1, True)
    nothing = torch.empty(0)
    out, grad = torch.empty(1, 3, 2, 2), torch.zeros_like(maps)
    module.roi_align_forward(maps, rois, out, nothing, nothing, *options)
    module.roi_align_backward(out, rois, nothing, nothing, grad, *options)

    def forward(input, rois, scale, height, width, ratio, aligned):
        assert (scale, height, width, ratio, aligned) == (0.5, 2, 2, 2, True)
        return out + 1

    def backward(given, rois, scale, height, width, *rest):
        assert rest == (2, 3, 6, 7, 2, True)
        return grad + 1

    monkeypatch.setattr(torch.ops, 'torchvision',
                        SimpleNamespace(roi_align=forward, _roi_align_backward=backward))
    monkeypatch.setattr(module, 'has_kernel', lambda name, like: True)
    again, total = torch.empty_like(out), torch.zeros_like(maps)
    module.roi_align_forward(maps, rois, again, nothing, nothing, *options)
    module.roi_align_backward(out, rois, nothing, nothing, total, *options)
    assert torch.equal(again, out + 1) and torch.equal(total, grad + 1)
    torch.use_deterministic_algorithms(True)
    try:
        total.zero_()
        module.roi_align_backward(out, rois, nothing, nothing, total, *options)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(total, grad)
