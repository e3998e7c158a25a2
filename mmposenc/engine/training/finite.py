"""Stops a training whose loss or gradients are not finite, before they change the weights."""
from __future__ import annotations

import os.path as osp
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from mmengine.dist import is_distributed
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import Tensor, distributed, nn
from torch.utils._pytree import tree_leaves

from .processes import unwrapped_model
from .seeding import iteration_seed, seed_all

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
    iteration, the images, the terms of the loss, the first module whose output is not finite, and
    a folder ``not_finite/iter_N`` in the work directory: ``checkpoint.pth`` holds the run right
    before (``--resume`` with it repeats the iteration), ``images.pth`` the batch as it was loaded.
    With a loss scale (float16) infinite gradients are the scaler's business; the loss is checked.

    Args:
        max_skipped: leave out so many such iterations, each with a line in the log, before the run
            ends. BatchNorm's statistics are put back too.
    """
    priority = 'VERY_LOW'

    def __init__(self, max_skipped: int = 0) -> None:
        if not isinstance(max_skipped, int) or max_skipped < 0:
            raise ValueError(f'max_skipped={max_skipped!r} must be an integer of at least 0')
        self.max_skipped, self.skipped = max_skipped, 0
        self.batch: dict | tuple | list | None = None
        self.buffers: list[tuple[Tensor, Tensor]] = []

    def before_train(self, runner: Runner) -> None:
        wrapper = runner.optim_wrapper
        if not isinstance(wrapper, OptimWrapper):
            return  # With several optimizers, their models call them themselves.
        update, step = wrapper.update_params, wrapper.step

        def checked_update(loss: Tensor, *args: object, **kwargs: object) -> None:
            if not _finite_in_all_processes(loss.detach().isfinite().all(), is_distributed()):
                self._skip_or_end(runner, 'the loss')
                return
            try:
                update(loss, *args, **kwargs)
            except _SkipIteration:
                wrapper.zero_grad()

        def checked_step(**kwargs: object) -> None:
            scaler = getattr(wrapper, 'loss_scaler', None)
            if not (scaler and scaler.is_enabled()) and (name := _first_bad_gradient(runner.model)):
                self._skip_or_end(runner, f'the gradient of {name}')
                raise _SkipIteration
            step(**kwargs)
        wrapper.update_params, wrapper.step = checked_update, checked_step

    def before_train_iter(self, runner: Runner, batch_idx: int,
                          data_batch: dict | tuple | list | None = None) -> None:
        self.batch = data_batch
        if self.max_skipped:
            self.buffers = [(buffer, buffer.clone()) for buffer in runner.model.buffers()]

    def _skip_or_end(self, runner: Runner, what: str) -> None:
        """Skip the iteration if that is allowed; otherwise write the report and end the run."""
        images = ', '.join(image_files_of_batch(self.batch)) or 'unknown'
        where = f'iteration {runner.iter + 1}: {what} is not finite; images: {images}'
        if self.skipped < self.max_skipped:
            self.skipped += 1
            for buffer, before in self.buffers:
                buffer.copy_(before)
            runner.logger.warning(f'{where}; skipped ({self.skipped} of {self.max_skipped})')
            # The iteration counts all the same, because mmengine's counters and the seeds of the
            # next iteration depend on it.
            runner.optim_wrapper._inner_count = runner.iter + 1
            return
        process = f'_process_{runner.rank}' if runner.rank else ''
        folder = Path(runner.work_dir, 'not_finite', f'iter_{runner.iter + 1}{process}')
        self._save_state(runner, folder)
        report = (f'{where}; {_rerun_and_diagnose(runner, self.batch)}. The run right before and '
                  'the batch '
                  f'are in {osp.relpath(folder)}; --resume {osp.relpath(folder)}/checkpoint.pth '
                  'repeats the iteration. (default_hooks.not_finite.max_skipped=N leaves out up to '
                  'N such iterations)')
        runner.logger.error(report)
        print(f'error: {report}', file=sys.stderr, flush=True)
        raise NotFinite(report)

    def _save_state(self, runner: Runner, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        inputs = self.batch.get('inputs') if isinstance(self.batch, dict) else self.batch
        torch.save({'inputs': inputs, 'images': image_files_of_batch(self.batch),
                    'iter': runner.iter},
                   folder / 'images.pth')
        runner.save_checkpoint(str(folder), 'checkpoint.pth', by_epoch=False,
                               meta={'epoch': runner.epoch, 'iter': runner.iter})


class _SkipIteration(Exception):
    """Raised to leave mmengine's update before the optimizer's step."""


def _finite_in_all_processes(finite: Tensor, several: bool) -> Tensor:
    """Whether each value is finite in all processes. If only one process stopped, the others would
    wait for it."""
    finite = finite.int()
    if several:
        distributed.all_reduce(finite, distributed.ReduceOp.MIN)
    return finite


def _first_bad_gradient(model: nn.Module) -> str | None:
    """The name of the first parameter whose gradient is not finite, the same in all processes; or
    None."""
    named = [(name, p.grad) for name, p in model.named_parameters() if p.grad is not None]
    if not named:
        return None
    # With FSDP2 a process has only its part of a gradient, and all processes must come to the same
    # answer.
    spread = any(hasattr(grad, 'to_local') for _, grad in named)
    grads = [grad.to_local() if hasattr(grad, 'to_local') else grad for _, grad in named]
    # One number for each gradient: a norm is finite exactly if all of it is finite (and not huge).
    norms = torch.stack([norm.float() for norm in torch._foreach_norm(grads)])
    if _finite_in_all_processes(norms.sum().isfinite(), spread):
        return None
    finite = _finite_in_all_processes(torch.stack([grad.isfinite().all() for grad in grads]),
                                      spread)
    return next((name.removeprefix('module.') for (name, _), good
                 in zip(named, finite, strict=True) if not good), None)


def image_files_of_batch(batch: object) -> list[str]:
    """The files of the images in a batch, as far as its samples say them."""
    samples = batch.get('data_samples') if isinstance(batch, dict) else None
    names = [getattr(sample, 'img_path', None) or getattr(sample, 'img_id', None)
             for sample in samples or []]
    return [str(name) for name in names if name is not None]


def _rerun_and_diagnose(runner: Runner, batch: dict | tuple | list | None) -> str:
    """Run the iteration again and watch its modules. The state was saved, so nothing is lost."""
    model = unwrapped_model(runner.model)
    first: list[str] = []
    seed_all(iteration_seed(runner))
    try:
        with torch.no_grad(), noting_first_not_finite(
            model, first), runner.optim_wrapper.optim_context(model):
            data = model.data_preprocessor(batch, True)
            losses = model(**data, mode='loss') if isinstance(data, dict) else model(*data,
                                                                                     mode='loss')
        bad = [name for name, value in losses.items() if not _all_finite(value)]
    except Exception as error:  # An error here must not hide the first report.
        return f'running it again ended in {type(error).__name__}: {error}'
    terms = ', '.join(bad) or 'none'
    where = first[0] if first else 'none: it is the backward pass'
    return f'terms of the loss that are not finite: {terms}; first module whose output is not ' \
           f'finite: {where}'


def _all_finite(value: object) -> bool:
    return all(bool(each.isfinite().all()) for each in tree_leaves(value)
               if isinstance(each, Tensor) and each.is_floating_point())


@contextmanager
def noting_first_not_finite(model: nn.Module, first: list[str],
                            depth: int | None = None) -> Iterator[None]:
    """Store in ``first`` the name of the first module, up to a depth, whose output is not finite.
    """
    names = {module: name for name, module in model.named_modules()
             if name and (depth is None or name.count('.') < depth)}

    def note_if_not_finite(module: nn.Module, inputs: object, output: object) -> None:
        if not first and not _all_finite(output):
            first.append(f'{names[module]} ({type(module).__name__}'
                         f'{"" if _all_finite(inputs) else ", whose input is not either"})')
    handles = [module.register_forward_hook(note_if_not_finite) for module in names]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
