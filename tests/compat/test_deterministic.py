"""What replaces operators without a deterministic form gives their numbers and gradients."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmposenc.compat import deterministic
from mmposenc.compat.deterministic import deterministic_forms


def agree(form, theirs, *inputs, **options):
    """Both functions of float64 tensors, and the gradients of those that are floating."""
    results = []
    for function in (form, theirs):
        own = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        out = function(*own, **options)
        draw = torch.Generator().manual_seed(0)
        out.backward(torch.randn(out.shape, generator=draw, dtype=out.dtype))
        results.append((out.detach(), [x.grad for x in own if x.is_floating_point()]))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def maps(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize('options', [
    dict(size=(7, 9), mode='bilinear', align_corners=False),
    dict(size=(3, 4), mode='bilinear', align_corners=True),
    dict(size=11, mode='bicubic', align_corners=False),
    dict(scale_factor=2, mode='bilinear', align_corners=False),
    dict(scale_factor=(0.7, 1.3), mode='bicubic', align_corners=False),
    dict(scale_factor=1.7, mode='bilinear', align_corners=False, recompute_scale_factor=True),
    dict(size=(3, 2), mode='bilinear', align_corners=False, antialias=True),
    dict(scale_factor=2, mode='nearest')])
def test_resizing(options):
    agree(deterministic.interpolate, F.interpolate, maps(2, 3, 5, 6), **options)
    agree(deterministic.interpolate, F.interpolate, maps(1, 2, 2, 4), **options)


@pytest.mark.parametrize('size', [1, 3, (2, 6), (None, 2)])
def test_adaptive_means(size):
    agree(deterministic.adaptive_avg_pool2d, F.adaptive_avg_pool2d, maps(2, 3, 5, 7),
          output_size=size)
    agree(deterministic.adaptive_avg_pool2d, F.adaptive_avg_pool2d, maps(3, 4, 2), output_size=size)


@pytest.mark.parametrize('align_corners', [False, True])
def test_sampling_inside_on_the_border_and_outside(align_corners):
    grid = 1.3 * maps(2, 4, 5, 2).clamp(-1.5, 1.5)
    grid[0, 0, :2] = torch.tensor([[-3.0, 0.2], [0.1, 5.0]], dtype=torch.float64)
    grid[1, 0, 0] = 0.0  # the middle of a cell, or the edge of two
    agree(deterministic.grid_sample, F.grid_sample, maps(2, 3, 6, 7), grid,
          align_corners=align_corners)
    agree(deterministic.grid_sample, F.grid_sample, maps(2, 3, 6, 1), grid,
          align_corners=align_corners, padding_mode='border')


@pytest.mark.parametrize('options', [
    dict(), dict(reduction='none'), dict(reduction='sum', ignore_index=2),
    dict(weight=torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64), ignore_index=0),
    dict(label_smoothing=0.1)])
def test_cross_entropy(options):
    target = torch.randint(0, 4, (2, 3, 5))
    cross_entropy, nll_loss = (deterministic.FORMS[loss] for loss in (F.cross_entropy, F.nll_loss))
    agree(cross_entropy, F.cross_entropy, maps(2, 4, 3, 5), target, **options)
    agree(cross_entropy, F.cross_entropy, maps(6, 4), target[:, 0].flatten()[:6], **options)
    if 'label_smoothing' not in options:
        agree(nll_loss, F.nll_loss, maps(2, 4, 3, 5), target, **options)
    else:
        agree(cross_entropy, F.cross_entropy, maps(2, 4, 3), maps(2, 4, 3).softmax(1))


def test_cumulative_sums():
    agree(deterministic.cumsum, torch.cumsum, maps(3, 4, 5), dim=1)
    mask = torch.rand(3, 4, 50) < 0.5
    torch.testing.assert_close(deterministic.cumsum(mask, 2, dtype=torch.float32),
                               mask.cumsum(2, dtype=torch.float32), rtol=0, atol=0)
    assert deterministic.cumsum(mask, -1).dtype == torch.int64


def test_which_calls_are_replaced(monkeypatch):
    """Those on an accelerator with deterministic algorithms, also of modules and of methods."""
    seen = []
    for function in (F.interpolate, torch.Tensor.cumsum, F.adaptive_avg_pool2d):
        monkeypatch.setitem(deterministic.FORMS, function,
                            lambda *args, name=function.__name__, **options: seen.append(name))
    monkeypatch.delenv('CUBLAS_WORKSPACE_CONFIG', raising=False)
    here, elsewhere = torch.ones(1, 2, 4, 4), torch.ones(1, 2, 4, 4, device='meta')

    def call():
        for x in (here, elsewhere):
            F.interpolate(x, scale_factor=2)
            nn.AdaptiveAvgPool2d(2)(x)
            x.cumsum(1)
    with deterministic_forms():
        call()
    assert not seen
    torch.use_deterministic_algorithms(True)
    try:
        with deterministic_forms():
            call()
        call()
    finally:
        torch.use_deterministic_algorithms(False)
    assert seen == ['interpolate', 'adaptive_avg_pool2d', 'cumsum']
