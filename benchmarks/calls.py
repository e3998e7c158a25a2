"""What is measured: inference and training of a function, and steps of a model."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

Run = Callable[[], object]


def kinds(runs: Mapping[str, Callable[[], Tensor]], leaves: Sequence[Tensor], grad: Tensor
          ) -> dict[str, dict[str, Run]]:
    """Each run without gradients, and with the backward pass from ``grad`` to all leaves that it
    reaches. Gradients are given back, not kept: every call is like the first."""
    def inference(run: Callable[[], Tensor]) -> Run:
        def call() -> None:
            with torch.no_grad():
                run()
        return call

    def training(run: Callable[[], Tensor]) -> Run:
        return lambda: torch.autograd.grad(run(), leaves, grad, allow_unused=True)
    return {'inference': {name: inference(run) for name, run in runs.items()},
            'training': {name: training(run) for name, run in runs.items()}}


def model_step(model: nn.Module, loss: Callable[[], Tensor], mode: str, device: str,
               dtype: torch.dtype, inputs: Sequence[Tensor] = ()) -> Run:
    """A training step without the optimizer, with gradients of the weights and of ``inputs``, or a
    forward pass in evaluation mode; half precision is autocast, weights float32."""
    leaves = [*(p for p in model.parameters() if p.requires_grad), *inputs]

    def run() -> None:
        model.train(mode == 'training')
        with torch.autocast(device, dtype, enabled=dtype != torch.float32), \
                torch.set_grad_enabled(mode == 'training'):
            value = loss()
        if mode == 'training':
            torch.autograd.grad(value, leaves, allow_unused=True)
    return run
