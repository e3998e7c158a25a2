"""mmengine's runner, safe to interrupt and at home on a CPU; its checkpoints are those of
runner_checkpoints.py."""
from __future__ import annotations

import os.path as osp
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import is_distributed, is_main_process
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper

from ..compat.deterministic import deterministic_forms
from .checkpoint_hook import CheckpointHook
from .checkpoints import INTERRUPTED, latest_checkpoint, note_checkpoint
from .interrupt import Interrupted, InterruptHook, StoppedAtOnce, ValidationHook
from .lock import WorkDirLock
from .loops import EpochBasedTrainLoop, IterBasedTrainLoop
from .processes import join_on_a_cpu, naming_the_lost, open_log, synchronized
from .runner_checkpoints import CheckpointRunner


class Runner(CheckpointRunner):
    """mmengine's Runner, for trainings that nobody watches.

    - No checkpoint runs code; see :mod:`mmposenc.checkpoint.loading`.
    - A checkpoint that does not fit the model is an error that lists what does not fit, unless
      the config says ``load_strict=False`` (mmengine logs it and goes on with random weights) or
      ``'but encodings'``, which lets position encodings alone differ.
    - A resumed run equals one that was not interrupted, to the bit on a CPU: by epoch, by
      iteration and from the middle of an epoch. Both train loops and CheckpointHook are this
      project's, whatever their name in the config.
    - Checkpoints are written under another name, put on the disk and renamed, and only then is an
      old one deleted.
    - SIGINT and SIGTERM save and end a run after the current iteration (``save_on_interrupt=False``
      in the config: without saving); a second one ends it at once. An error saves too, when
      weights and optimizer are those of a complete iteration.
    - One training a work directory.
    - Distributed runs work on CPUs, through gloo. Each process has a log; where one is gone, the
      others say which, and where its log is.
    """

    def setup_env(self, env_cfg: dict) -> None:
        if self._distributed and not is_distributed() and get_device() == 'cpu':
            join_on_a_cpu(self._launcher, (env_cfg.get('dist_cfg') or {}).get('timeout'))
        super().setup_env(env_cfg)

    def build_logger(self, *args: Any, **kwargs: Any) -> Any:
        logger = super().build_logger(*args, **kwargs)
        if self.distributed:
            open_log(logger, self._log_dir, self.rank)
        return logger

    def wrap_model(self, model_wrapper_cfg: dict | None, model: torch.nn.Module
                   ) -> torch.nn.Module:
        if self.distributed and not is_model_wrapper(model):
            synchronized(model)
        if get_device() != 'cpu' or not self.distributed or is_model_wrapper(model):
            return super().wrap_model(model_wrapper_cfg, model)
        # mmengine passes device_ids, which a model on a CPU must not have.
        cfg = model_wrapper_cfg or dict(
            type='MMDistributedDataParallel', broadcast_buffers=False,
            find_unused_parameters=self.cfg.get('find_unused_parameters', False))
        if 'DistributedDataParallel' in str(cfg.get('type', 'MMDistributedDataParallel')):
            cfg = dict(cfg, device_ids=None)
        return super().wrap_model(cfg, model)

    def register_hooks(self, *args: Any, **kwargs: Any) -> None:
        super().register_hooks(*args, **kwargs)
        self.validation, self.interrupt = ValidationHook(), InterruptHook()
        self.register_hook(self.validation)
        self.register_hook(self.interrupt, priority='LOWEST')

    def register_hook(self, hook: Hook | dict, priority: Any = None) -> None:
        if isinstance(hook, dict) and _plain(hook.get('type')) == 'CheckpointHook':
            hook = {**hook, 'type': CheckpointHook}
        super().register_hook(hook, priority)

    def build_train_loop(self, loop: Any) -> Any:
        if isinstance(loop, dict):
            loop = dict(loop)
            if 'type' in loop and 'by_epoch' in loop:
                raise ValueError('train_cfg: it must have type or by_epoch, not both')
            kind = _plain(loop.get('type')) or (
                'EpochBasedTrainLoop' if loop.pop('by_epoch') else 'IterBasedTrainLoop')
            loop['type'] = {'EpochBasedTrainLoop': EpochBasedTrainLoop,
                            'IterBasedTrainLoop': IterBasedTrainLoop}.get(kind, loop.get('type'))
        return super().build_train_loop(loop)

    def train(self) -> torch.nn.Module:
        lock = WorkDirLock(self.work_dir) if is_main_process() else None
        try:
            with self._tidy():
                try:
                    with deterministic_forms():
                        return super().train()
                except BaseException as error:
                    self._rescue(error)
                    raise
        finally:
            if lock is not None:
                lock.release()

    def val(self) -> dict:
        with self._tidy():
            return super().val()

    def test(self) -> dict:
        with self._tidy():
            return super().test()

    @contextmanager
    def _tidy(self) -> Iterator[None]:
        """Gives back the signals and the terminal and closes trackers, also after an error."""
        try:
            with naming_the_lost(self._log_dir):
                yield
        finally:
            for hook in self.hooks:
                if getattr(hook, 'ends_after_errors', False):
                    hook.after_run(self)

    def stop_if_interrupted(self) -> None:
        """Called by the training loop between iterations."""
        if signum := self.interrupt.agreed():
            raise Interrupted(128 + signum)

    def _rescue(self, error: BaseException) -> None:
        """Saves the last complete iteration when a run ends early, if nobody has yet."""
        asked = isinstance(error, Interrupted) and not isinstance(error, StoppedAtOnce)
        if not asked and not isinstance(error, Exception):
            return  # such as a loss that is not finite, which would come again
        loop, saved = self._train_loop, False
        if self._may_rescue(loop) and (not asked or self.cfg.get('save_on_interrupt', True)):
            self.validation.put_back(self)
            try:
                self.save_checkpoint(self.work_dir, INTERRUPTED, by_epoch=False,
                                     meta={'epoch': loop.epoch, 'iter': loop.iter})
                if is_main_process():
                    note_checkpoint(self.work_dir, osp.join(self.work_dir, INTERRUPTED))
                saved = True
            except Exception as second:  # the first error is the one to show
                self.logger.warning(f'this could not be saved either: {second}')
        if asked or saved:
            self._say_where_to_continue(f'interrupted by {self._signal()}' if asked
                                        else f'stopped by {type(error).__name__}')

    def _may_rescue(self, loop: Any) -> bool:
        return (isinstance(loop, (EpochBasedTrainLoop, IterBasedTrainLoop)) and loop.at_rest
                and loop.iter > self._saved_iter and self.may_save())

    def _signal(self) -> str:
        return signal.Signals(self.interrupt.signum).name if self.interrupt.signum else 'a signal'

    def _say_where_to_continue(self, reason: str) -> None:
        last = latest_checkpoint(self.work_dir)
        hint = (f'continue from {last} with --resume auto' if last
                else 'there is no checkpoint yet, so --resume auto starts from the beginning')
        at = f'in epoch {self.epoch + 1}, after iteration {self.iter}'
        self.logger.warning(f'{reason} {at}; {hint}')


def _plain(kind: Any) -> str:
    """The name of a class in a config, without mmengine's scope."""
    name = kind if isinstance(kind, str) else getattr(kind, '__name__', '')
    return name.removeprefix('mmengine.')
