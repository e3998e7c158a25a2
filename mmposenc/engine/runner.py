"""mmengine's runner, made strict about checkpoints, safe to interrupt and at home on a CPU."""
from __future__ import annotations

import os
import os.path as osp
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import is_distributed, master_only
from mmengine.hooks import Hook
from mmengine.model import MMDistributedDataParallel, is_model_wrapper
from mmengine.model.test_time_aug import BaseTTAModel
from mmengine.runner import Runner as _Runner

from mmposenc.registry import RUNNERS

from .checkpoints import latest_checkpoint, mismatch
from .processes import synchronized
from .progress import ProgressBarHook


@RUNNERS.register_module()
class Runner(_Runner):
    """mmengine's Runner with four differences.

    - A checkpoint that does not fit the model is an error that lists what does not fit, unless
      the config says ``load_strict=False`` (mmengine logs it and goes on with random weights).
    - Checkpoints are written under another name and renamed, so that a killed run never leaves
      half of one, and an automatic resume passes over what is incomplete.
    - SIGINT and SIGTERM end a run after the current iteration; a second one ends it at once.
    - Distributed runs work on CPUs, through gloo.
    """

    def setup_env(self, env_cfg: dict) -> None:
        if self._distributed and not is_distributed() and get_device() == 'cpu':
            if self._launcher != 'pytorch':
                raise ValueError(f'--launcher {self._launcher}: without a GPU only '
                                 "'pytorch' (torchrun) is supported")
            torch.distributed.init_process_group('gloo')
        super().setup_env(env_cfg)

    def wrap_model(self, model_wrapper_cfg: dict | None, model: torch.nn.Module
                   ) -> torch.nn.Module:
        if self.distributed and not is_model_wrapper(model):
            synchronized(model)
        on_gpu = get_device() != 'cpu'
        if on_gpu or not self.distributed or model_wrapper_cfg or is_model_wrapper(model):
            return super().wrap_model(model_wrapper_cfg, model)
        # mmengine passes device_ids, which a model on a CPU must not have.
        return MMDistributedDataParallel(
            module=model, broadcast_buffers=False,
            find_unused_parameters=self.cfg.get('find_unused_parameters', False))

    def register_hooks(self, *args: Any, **kwargs: Any) -> None:
        super().register_hooks(*args, **kwargs)
        self.register_hook(_InterruptHook(), priority='LOWEST')

    def train(self) -> torch.nn.Module:
        with self._tidy():
            return super().train()

    def val(self) -> dict:
        with self._tidy():
            return super().val()

    def test(self) -> dict:
        with self._tidy():
            return super().test()

    @contextmanager
    def _tidy(self) -> Iterator[None]:
        """Gives back the signals and the terminal, also after an error."""
        try:
            yield
        finally:
            for hook in self.hooks:
                if isinstance(hook, (_InterruptHook, ProgressBarHook)):
                    hook.after_run(self)

    def load_or_resume(self) -> None:
        if not self._has_loaded and self._resume and self._load_from is None:
            self._load_from = latest_checkpoint(self.work_dir)
            if self._load_from is None:
                self.logger.warning(f'--resume auto: no checkpoint in {self.work_dir}, '
                                    'training starts from the beginning')
                self._resume = False
        super().load_or_resume()

    def load_checkpoint(self, filename: str, *args: Any, **kwargs: Any) -> dict:
        self._loading = filename
        return super().load_checkpoint(filename, *args, **kwargs)

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        super().call_hook(fn_name, **kwargs)
        if fn_name == 'after_load_checkpoint':  # the last moment before the weights go in
            self._check_match(kwargs['checkpoint'])

    def _check_match(self, checkpoint: dict) -> None:
        model = self.model.module if is_model_wrapper(self.model) else self.model
        if isinstance(model, BaseTTAModel):
            model = model.module
        state = checkpoint.get('state_dict', checkpoint)
        state = {name.removeprefix('module.'): value for name, value in state.items()}
        report = mismatch(model.state_dict(), state)
        if not report:
            return
        report = f'the checkpoint {self._loading} does not fit the model\n{report}'
        if self.cfg.get('load_strict', True):
            raise ValueError(f'{report}\nUse the config it was trained with, or pass '
                             '--allow-mismatch (load_strict=False in the config) to load only '
                             'what fits.')
        self.logger.warning(report)

    @master_only
    def save_checkpoint(self, out_dir: str, filename: str, *args: Any, **kwargs: Any) -> None:
        if '://' in str(out_dir):
            super().save_checkpoint(out_dir, filename, *args, **kwargs)
            return
        partial = osp.join(out_dir, f'{filename}.partial')
        try:
            super().save_checkpoint(out_dir, f'{filename}.partial', *args, **kwargs)
            os.replace(partial, osp.join(out_dir, filename))
        finally:
            if osp.exists(partial):
                os.remove(partial)


class Interrupted(SystemExit):
    """Ends the program with the exit status that shells give to a signal."""


class _InterruptHook(Hook):
    """Turns SIGINT and SIGTERM into an end after the current iteration."""

    def __init__(self) -> None:
        self.signum = 0
        self.previous: dict[int, Any] = {}

    def before_run(self, runner: Runner) -> None:
        for signum in (signal.SIGINT, signal.SIGTERM):
            try:
                self.previous[signum] = signal.signal(signum, self._remember)
            except ValueError:  # not the main thread: leave the signals to whoever has it
                return

    def after_run(self, runner: Runner) -> None:
        while self.previous:
            signal.signal(*self.previous.popitem())

    def _remember(self, signum: int, frame: FrameType | None) -> None:
        if self.signum:
            raise Interrupted(128 + signum)
        self.signum = signum
        print(f'\n{signal.Signals(signum).name}: stopping after this iteration; '
              'send it again to stop at once', flush=True)

    def _stop(self, runner: Runner) -> None:
        if not self.signum:
            return
        self.after_run(runner)
        last = latest_checkpoint(runner.work_dir)
        hint = (f'continue from {last} with --resume auto' if last
                else 'there is no checkpoint yet, so --resume auto starts from the beginning')
        runner.logger.warning(f'interrupted by {signal.Signals(self.signum).name} in epoch '
                              f'{runner.epoch + 1}, iteration {runner.iter + 1}; {hint}')
        raise Interrupted(128 + self.signum)

    def after_train_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        self._stop(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        self._stop(runner)

    def after_val_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        self._stop(runner)

    def after_test_iter(self, runner: Runner, *args: Any, **kwargs: Any) -> None:
        self._stop(runner)
