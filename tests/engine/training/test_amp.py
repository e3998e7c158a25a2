"""Mixed precision without a GPU."""
import itertools
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import OPTIM_WRAPPERS
from torch import nn

from mmposenc.engine import AmpOptimWrapper
from mmposenc.engine.training.amp import _is_narrow

cpu_only = pytest.mark.skipif(torch.cuda.is_available(), reason='for machines without a GPU')


def wrapper(model, **kwargs) -> AmpOptimWrapper:
    return OPTIM_WRAPPERS.build(dict(type='mmposenc.AmpOptimWrapper', **kwargs, optimizer=
                                     torch.optim.SGD(model.parameters(), lr=0.5)))


@cpu_only
def test_bfloat16_step_on_a_cpu() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    x, before = torch.randn(3, 4), model.weight.detach().clone()
    optim = wrapper(model, loss_scale='dynamic')
    with optim.optim_context(model):
        y = model(x)
    assert y.dtype is torch.bfloat16
    optim.update_params(y.float().sum())
    assert model.weight.dtype is torch.float32
    # The gradient of the sum is the sum of x: unscaled, to bfloat16's 8 bits.
    step = (before - model.weight) / 0.5
    torch.testing.assert_close(step, x.sum(0).expand(2, 4), atol=2e-2, rtol=1e-2)
    assert not optim.loss_scaler.is_enabled()


@cpu_only
def test_float16_on_a_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optim_wrapper\.dtype: torch\.float16 .* 'bfloat16'"):
        wrapper(nn.Linear(2, 2), dtype='float16')


@cpu_only
def test_all_maps_are_narrow_on_which_a_side_of_the_kernel_meets_padding_alone() -> None:
    """By kernels with a single one, whose sums are zero then."""
    for size, taps, step, pad, gap in itertools.product(
            range(1, 9), (1, 2, 3, 5), (1, 2, 3), range(4), (1, 2)):
        if size + 2 * pad <= gap * (taps - 1):
            continue
        met = F.conv1d(torch.ones(1, 1, size), torch.eye(taps)[:, None], None, step, pad, gap)
        image, kernel = torch.ones(1, 1, 99, size), torch.ones(1, 1, 1, taps)
        with torch.autocast('cpu', torch.bfloat16):
            narrow = _is_narrow(image, kernel, None, (1, step), (0, pad), (1, gap))
        assert narrow or (met.amax((0, 2)) > 0).all(), (size, taps, step, pad, gap)
    with torch.autocast('cpu', torch.bfloat16):
        assert not _is_narrow(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3), stride=2)


@cpu_only
@pytest.mark.parametrize('shape, kernel, stride', [((7, 1), 3, 2), ((1, 1), 3, 2), ((1, 7), 5, 1),
                                                   ((7, 2), 3, 3)])
def test_gradients_of_narrow_maps(shape, kernel, stride) -> None:
    """torch 2.13 leaves memory that nobody wrote in the weight's gradient: here it is NaN."""
    torch.manual_seed(0)
    conv = nn.Conv2d(256, 256, kernel, stride, kernel // 2)
    x = torch.randn(2, 256, *shape)
    grads = {}
    for dtype in (torch.float32, torch.bfloat16):
        conv.zero_grad()
        junk = [torch.full((256 * 256 * kernel * kernel,), float('nan')).bfloat16()
                for _ in range(4)]
        del junk
        with wrapper(conv).optim_context(conv) if dtype is torch.bfloat16 else nullcontext():
            y = conv(x)
        assert y.dtype is dtype
        y.float().square().sum().backward()
        grads[dtype] = conv.weight.grad.clone()
    error = (grads[torch.bfloat16] - grads[torch.float32]).norm()
    assert error < 2e-2 * grads[torch.float32].norm()
