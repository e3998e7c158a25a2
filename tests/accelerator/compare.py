"""One training step on the accelerator against the same on the CPU."""
from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from device import Device, overwrite, to_cpu
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


def step(model: nn.Module, call: Callable[..., Any], inputs: list[Tensor],
         like: Callable[[Tensor], Tensor]) -> tuple[list[Tensor], dict[str, Tensor | None]]:
    """Outputs, and the gradients of parameters and inputs by a random sum of the outputs."""
    for parameter in model.parameters():
        parameter.grad = None
    torch.manual_seed(1)
    outs = [x for x in tree_leaves(call(model, *inputs))
            if isinstance(x, Tensor) and x.is_floating_point()]
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(x.shape, generator=generator) for x in outs]
    sum((x.float() * like(w)).sum() for x, w in zip(outs, weights, strict=True)).backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    grads.update({f'input {i}': x.grad for i, x in enumerate(inputs) if x.requires_grad})
    return outs, grads


def compare(model: nn.Module, call: Callable[..., Any], inputs: list[Tensor], *,
            reference: nn.Module | None = None, autocast: torch.dtype | None = None,
            tolerance: float = 1e-4) -> Counter:
    """Check a training step's outputs and gradients; returns the waits of a second step, when what
    depends on sizes alone has been seen.

    ``reference`` is what runs on the CPU instead of a copy.
    """
    own = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outs, grads = step(reference or copy.deepcopy(model), call, own, lambda x: x)
    with Device() as gpu:
        moved = gpu.module(model)
        initial = copy.deepcopy([to_cpu(b).clone() for b in moved.buffers()])
        for _ in range(2):
            for buffer, value in zip(moved.buffers(), initial, strict=True):
                overwrite(buffer, value)  # running statistics, say
            given = [gpu.tensor(x, x.is_floating_point()) for x in inputs]
            gpu.waits.clear()
            with gpu.autocast(autocast) if autocast else nullcontext():
                got, got_grads = step(moved, call, given, gpu.tensor)
        waits = gpu.report()
    for one, other in zip(got, outs, strict=True):
        assert one.device.type == 'cuda'
        close(to_cpu(one), other, tolerance, 'output')
    close_gradients(got_grads, grads, 5 * tolerance)
    return waits


def close_gradients(got: dict[str, Tensor | None], expected: dict[str, Tensor | None],
                    tolerance: float) -> None:
    """By their norms, those that are zero but for rounding with the largest."""
    largest = max((float(g.norm()) for g in expected.values() if g is not None), default=1.0)
    for name, other in expected.items():
        one = got[name]
        assert (one is None) == (other is None), f'{name} has a gradient on one device alone'
        if one is not None and other is not None:
            close(to_cpu(one), other, tolerance, name, 1e-3 * largest)


def close(one: Tensor, other: Tensor, tolerance: float, name: str, least: float = 1e-6) -> None:
    assert torch.isfinite(one).all() or not torch.isfinite(other).all(), f'{name} is not finite'
    differs = float((one.float() - other.float()).norm() / other.float().norm().clamp(min=least))
    assert differs <= tolerance, f'{name} differs by {differs:.1e}'


def draw(*shape: int) -> Tensor:
    """Random numbers that depend on the shape alone."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def padding(batch: int, height: int, width: int) -> Tensor:
    """The first image ends two rows and a column before the batch."""
    mask = torch.zeros(batch, height, width, dtype=torch.bool)
    mask[0, height - 2:] = True
    mask[0, :, width - 1:] = True
    return mask


def off_zero(model: nn.Module) -> nn.Module:
    """Tables that start at zero take part."""
    for parameter in model.parameters():
        if float(parameter.abs().max()) == 0:
            nn.init.normal_(parameter, std=0.1)
    return model
