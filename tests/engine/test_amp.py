"""Mixed precision without a GPU."""
from __future__ import annotations

import pytest
import torch
from mmengine.registry import OPTIM_WRAPPERS
from torch import nn

from mmposenc.engine import AmpOptimWrapper

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
def test_state_goes_to_and_from_a_run_without_a_loss_scale() -> None:
    model = nn.Linear(4, 2)
    optim = wrapper(model)
    optim.load_state_dict(optim.state_dict())
    optim.load_state_dict(optim.optimizer.state_dict())  # of a float32 run


@cpu_only
def test_float16_on_a_cpu_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optim_wrapper\.dtype: torch\.float16 .* 'bfloat16'"):
        wrapper(nn.Linear(2, 2), dtype='float16')


@pytest.mark.skipif(not torch.cuda.is_available(), reason='needs a GPU')
def test_scaling_on_a_gpu_is_for_float16_alone() -> None:
    model = nn.Linear(4, 2).cuda()
    assert wrapper(model).loss_scaler.is_enabled()
    assert not wrapper(model, dtype='bfloat16').loss_scaler.is_enabled()
