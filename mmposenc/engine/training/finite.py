"""Stops a training whose loss or gradients are not finite, before they change the weights."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import torch
from mmengine.dist import is_distributed
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import Tensor, distributed, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from .distributed import unwrapped_model

#: The exit status of a run that ends for this reason.
STATUS = 3


class NotFinite(SystemExit):
    """Ends the program with status 3; ``report`` says what is not finite."""

    def __init__(self, report: str) -> None:
        super().__init__(STATUS)
        self.report = report

    def __str__(self) -> str:
        return self.report


class NotFiniteHook(Hook):
    """Ends the run, with status 3, at a loss or a gradient that is NaN or infinite.

    Looks before the optimizer's step, so the weights are still good. The message names the
    iteration and the images. With a loss scale (float16) infinite gradients are the scaler's
    business; the loss is checked.
    """
    priority = 'VERY_LOW'

    def __init__(self) -> None:
        self.batch: object = None

    def before_train(self, runner: Runner) -> None:
        """Look at losses and gradients on their way to the optimizer."""
        wrapper, model = runner.optim_wrapper, unwrapped_model(runner.model)
        if not isinstance(wrapper, OptimWrapper):
            return  # With several optimizers, their models call them themselves.
        update, step = wrapper.update_params, wrapper.step

        def checked_update(loss: Tensor, *args: object, **kwargs: object) -> None:
            if not _finite_in_all_processes(loss.detach()):
                self._end_run(runner, 'the loss')
            update(loss, *args, **kwargs)

        def checked_step(**kwargs: object) -> None:
            scaler = getattr(wrapper, 'loss_scaler', None)
            if not (scaler and scaler.is_enabled()) and (
                    name := _first_bad_gradient(model, wrapper.optimizer)):
                self._end_run(runner, f'the gradient of {name}')
            step(**kwargs)
        wrapper.update_params, wrapper.step = checked_update, checked_step

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None
                          ) -> None:
        self.batch = data_batch

    def _end_run(self, runner: Runner, what: str) -> NoReturn:
        images = ', '.join(image_files_of_batch(self.batch)) or 'unknown'
        report = f'iteration {runner.iter + 1}: {what} is not finite; images: {images}'
        runner.logger.error(report)
        print(f'error: {report}', file=sys.stderr, flush=True)
        raise NotFinite(report)


def _finite_in_all_processes(value: Tensor) -> bool:
    """Whether a value is finite in all processes. If only one process stopped, the others would
    wait for it."""
    finite = value.isfinite().all().int()
    if is_distributed():
        distributed.all_reduce(finite, distributed.ReduceOp.MIN)
    return bool(finite)


def _first_bad_gradient(model: nn.Module, optimizer: Optimizer) -> str | None:
    """The name of the first parameter whose gradient is not finite, or None. Gradients have been
    averaged, so all processes find the same."""
    # Of a small model, going through all modules would take longer than the norms.
    grads = [p.grad for group in optimizer.param_groups for p in group['params']
             if p.grad is not None]
    if not grads:
        return None
    # One number for each gradient: a norm is finite exactly if all of it is finite (and not huge).
    norms = torch._foreach_norm(grads)
    if torch.stack([norm.float() for norm in norms]).sum().isfinite():
        return None
    return next((name for name, p in model.named_parameters()
                 if p.grad is not None and not p.grad.isfinite().all()), None)


def image_files_of_batch(batch: object) -> list[str]:
    """The files of the images in a batch, as far as its samples say them."""
    samples = batch.get('data_samples') if isinstance(batch, dict) else None
    names = [getattr(sample, 'img_path', None) or getattr(sample, 'img_id', None)
             for sample in samples or []]
    return [str(name) for name in names if name is not None]


@contextmanager
def noting_first_not_finite(model: nn.Module, first: list[str], depth: int) -> Iterator[None]:
    """Store in ``first`` the name of the first module, up to a depth, whose output is not finite.
    """
    names = {module: name for name, module in model.named_modules()
             if name and name.count('.') < depth}

    def note_if_not_finite(module: nn.Module, inputs: object, output: object) -> None:
        if not first and not all(bool(each.isfinite().all()) for each in tree_leaves(output)
                                 if isinstance(each, Tensor)):
            first.append(f'{names[module]} ({type(module).__name__})')
    handles = [module.register_forward_hook(note_if_not_finite) for module in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
