"""mmengine's runner, with strict loading and careful saving."""
from __future__ import annotations

import copy
import os.path as osp
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from mmengine.device import get_device
from mmengine.dist import is_distributed, is_main_process, master_only
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.model import is_model_wrapper
from mmengine.model.test_time_aug import BaseTTAModel
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.runner import BaseLoop
from mmengine.runner import Runner as _Runner
from torch import distributed as dist
from torch.utils.data import DataLoader

from mmposenc.backbones import load_pretrained
from mmposenc.checkpoint.integrity import writing_whole_file
from mmposenc.checkpoint.mmengine_loading import CheckpointLoader
from mmposenc.config_types import ConfigType

from ..config.models import hint_to_config_beside
from ..config.nodes import checked, type_without_library
from ..console import ConsoleHook, quieten_console
from .checkpoints import (
    INTERRUPTED,
    CheckpointHook,
    first_not_finite,
    latest_checkpoint,
    write_last_checkpoint,
)
from .interrupt import Interrupted, InterruptHook, StoppedAtOnce, ValidationHook
from .layer_decay import with_our_constructor
from .lock import WorkDirLock
from .loops import EpochBasedTrainLoop, IterBasedTrainLoop, ResumableLoop
from .processes import join_on_a_cpu, synchronize_norms, unwrapped_model
from .resuming import SettingsOfConfig, changed_settings, schedule_settings

#: The first line of a config that a runner writes.
_DUMPED = '# Written by mmposenc: the config of this run with all that it inherits.'


class CheckpointRunner(_Runner):
    """The part of :class:`~mmposenc.engine.training.runner.Runner` that handles checkpoints."""

    #: The number of iterations in the newest checkpoint.
    _saved_iter = 0

    def load_or_resume(self) -> None:
        if not self._has_loaded and self._resume and self._load_from is None:
            self._load_from = latest_checkpoint(self.work_dir)
            if self._load_from is None:
                self.logger.warning(f'--resume auto: no checkpoint in {self.work_dir}, '
                                    'training starts from the beginning')
                self._resume = False
        super().load_or_resume()

    def load_checkpoint(self, filename: str, map_location: str | torch.device | Callable = 'cpu',
                        *args: object, **kwargs: object) -> dict:
        checkpoint: dict = CheckpointLoader.load_checkpoint(filename, map_location)
        # The file has only weights, as .safetensors do, but EMAHook asks for this key.
        if 'state_dict' not in checkpoint:
            checkpoint = {'state_dict': checkpoint}
        if isinstance(checkpoint.get('meta'), dict):
            # Removed, because a resume would run the text of this config as code.
            checkpoint['meta'].pop('config', None)
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        model = unwrapped_model(self.model)
        load_pretrained(
            model.module if isinstance(model, BaseTTAModel) else model, checkpoint,
            name=f'the checkpoint {filename}', strict=self.cfg.get('load_strict', True),
            same_model=self._resume or self._train_loop is None,
            remedy='; use the config it was trained with'
                   f'{hint_to_config_beside(filename)}, or pass '
                   '--allow-mismatch (load_strict=False in the config) to load only what fits')
        self._has_loaded, self._loaded = True, checkpoint
        self.logger.info(f'Load checkpoint from {filename}')
        return checkpoint

    def resume(self, filename: str, *args: object, **kwargs: object) -> None:
        self.optim_wrapper = self.build_optim_wrapper(self.optim_wrapper)
        if self.param_schedulers is not None:
            self.param_schedulers = self.build_param_scheduler(self.param_schedulers)
        configs_own = SettingsOfConfig(self)
        super().resume(filename, *args, **kwargs)
        checkpoint, self._loaded = self._loaded, {}
        if isinstance(self._train_loop, ResumableLoop):
            self._train_loop.continue_at(checkpoint['meta'])
        self._use_changed_settings(checkpoint['meta'], configs_own)
        self._saved_iter = self.iter
        for name, parameter in unwrapped_model(self.model).named_parameters():
            if name in checkpoint.get('gradients', {}):
                parameter.grad = checkpoint['gradients'][name].to(parameter)

    def _use_changed_settings(self, meta: dict[str, object], configs_own: SettingsOfConfig) -> None:
        """Let the config win where its optimizer and schedule differ from those of the training
        that is resumed. mmengine would put the checkpoint's values back without a message."""
        before = meta.get('settings')
        changed = before and changed_settings(before, schedule_settings(self.cfg))
        if not changed:
            return
        self.logger.warning('the resumed training had other settings; those of the config are used '
                            f'from here on: {"; ".join(changed)}')
        by_epoch = isinstance(self._train_loop, EpochBasedTrainLoop)
        configs_own.put_over_checkpoint(self, self.epoch,
                                        len(self.train_dataloader) if by_epoch else None)

    def call_hook(self, fn_name: str, **kwargs: object) -> None:
        super().call_hook(fn_name, **kwargs)
        if fn_name == 'before_save_checkpoint' and 'optimizer' in kwargs['checkpoint']:
            self._add_accumulated_gradients(kwargs['checkpoint'])

    def _add_accumulated_gradients(self, checkpoint: dict) -> None:
        """Add gradients that were accumulated and not applied yet."""
        wrapper = self.optim_wrapper
        if getattr(wrapper, '_inner_count', 0) % getattr(wrapper, '_accumulative_counts', 1):
            checkpoint['gradients'] = {
                name: parameter.grad.cpu() for name, parameter
                in unwrapped_model(self.model).named_parameters() if parameter.grad is not None}

    def weights_are_finite(self) -> bool:
        """Whether the weights are finite; others must never replace a good checkpoint."""
        models = [unwrapped_model(self.model)]
        models += [hook.ema_model for hook in self.hooks if hasattr(hook, 'ema_model')]
        for model in models:
            if name := first_not_finite(model.state_dict(), dict(model.named_parameters())):
                self.logger.error(f'no checkpoint is saved: {name} is not finite (iteration '
                                  f'{self.iter + 1})')
                return False
        return True

    @master_only
    def save_checkpoint(self, out_dir: str, filename: str, *args: object, meta: dict | None = None,
                        by_epoch: bool = True, **kwargs: object) -> None:
        meta, loop = dict(meta or {}), self._train_loop
        meta.setdefault('epoch', self.epoch + by_epoch)
        meta.setdefault('iter', self.iter + (not by_epoch))
        if isinstance(loop, ResumableLoop):
            meta['data'] = loop.data_position(meta['epoch'], meta['iter'])
            meta['images_a_step'] = loop.images_per_step
            meta['settings'] = schedule_settings(self.cfg)
            meta['validated'] = loop.needs_no_validation(meta['epoch'], meta['iter'])
        if '://' in str(out_dir):
            super().save_checkpoint(out_dir, filename, *args, meta=meta, by_epoch=by_epoch,
                                    **kwargs)
            return
        path = Path(out_dir, filename)
        try:
            with writing_whole_file(path) as partial:
                super().save_checkpoint(out_dir, partial.name, *args, meta=meta,
                                        by_epoch=by_epoch, **kwargs)
        except OSError as error:
            raise OSError(f'the checkpoint {path} cannot be written: {error.strerror or error}; '
                          'earlier ones are complete, and --resume continues from them') from error
        self._saved_iter = meta['iter']


class Runner(CheckpointRunner):
    """mmengine's Runner, for trainings without supervision.

    - No checkpoint runs code; see :mod:`mmposenc.checkpoint.loading`.
    - A checkpoint that does not fit the model is an error that lists what does not fit, unless
      the config says ``load_strict=False`` (mmengine logs it and continues with random weights) or
      ``'but encodings'``, which lets only position encodings differ.
    - A resumed run equals one that was not interrupted, to the bit on a CPU: by epoch, by
      iteration and from the middle of an epoch. Both train loops and CheckpointHook are this
      project's, whatever their name in the config.
    - Checkpoints are written under another name, put on the disk and renamed, and only then is an
      old one deleted.
    - SIGINT and SIGTERM save and end a run after the current iteration (``save_on_interrupt=False``
      in the config: without saving); a second one ends it at once. An error saves too, when
      weights and optimizer are those of a complete iteration.
    - One training a work directory.
    - Distributed runs work on CPUs, through gloo.
    """

    def setup_env(self, env_cfg: dict) -> None:
        if self._distributed and not is_distributed() and get_device() == 'cpu':
            join_on_a_cpu(self._launcher, (env_cfg.get('dist_cfg') or {}).get('timeout'))
        super().setup_env(env_cfg)

    def build_logger(self, *args: object, **kwargs: object) -> MMLogger:
        return quieten_console(super().build_logger(*args, **kwargs))

    def wrap_model(self, model_wrapper_cfg: dict | None, model: torch.nn.Module
                   ) -> torch.nn.Module:
        if self.distributed and not is_model_wrapper(model):
            synchronize_norms(model)
            if dist.get_debug_level() == dist.DebugLevel.OFF:
                # With this level, DistributedDataParallel names the weights that get no gradient.
                dist.set_debug_level(dist.DebugLevel.INFO)
        if get_device() != 'cpu' or not self.distributed or is_model_wrapper(model):
            return super().wrap_model(model_wrapper_cfg, model)
        # mmengine passes device_ids, which a model on a CPU must not get.
        cfg = model_wrapper_cfg or dict(
            type='MMDistributedDataParallel', broadcast_buffers=False,
            find_unused_parameters=self.cfg.get('find_unused_parameters', False))
        if 'DistributedDataParallel' in str(cfg.get('type', 'MMDistributedDataParallel')):
            cfg = dict(cfg, device_ids=None)
        return super().wrap_model(cfg, model)

    def register_hooks(self, *args: object, **kwargs: object) -> None:
        super().register_hooks(*args, **kwargs)
        self.validation, self.interrupt = ValidationHook(), InterruptHook()
        self.register_hook(self.validation)
        self.register_hook(self.interrupt, priority='LOWEST')
        self.register_hook(ConsoleHook())

    def register_hook(self, hook: Hook | dict, priority: str | int | None = None) -> None:
        if isinstance(hook, dict) and type_without_library(hook) == 'CheckpointHook':
            hook = {**hook, 'type': CheckpointHook}
        super().register_hook(hook, priority)

    def build_optim_wrapper(self, optim_wrapper: OptimWrapper | ConfigType
                            ) -> OptimWrapper | OptimWrapperDict:
        if isinstance(optim_wrapper, dict) and 'optimizer' in optim_wrapper:
            optim_wrapper = with_our_constructor(optim_wrapper, unwrapped_model(self.model))
        return super().build_optim_wrapper(optim_wrapper)

    def scale_lr(self, optim_wrapper: OptimWrapper, auto_scale_lr: dict | None = None) -> None:
        """Scale the learning rate by the number of images in a step, over all batches that are
        accumulated."""
        counts = getattr(optim_wrapper, '_accumulative_counts', 1)
        if auto_scale_lr and 'base_batch_size' in auto_scale_lr:
            auto_scale_lr = {**auto_scale_lr,
                             'base_batch_size': auto_scale_lr['base_batch_size'] / counts}
        super().scale_lr(optim_wrapper, auto_scale_lr)

    def build_train_loop(self, loop: BaseLoop | ConfigType) -> BaseLoop:
        if isinstance(loop, dict):
            loop = dict(loop)
            if 'type' in loop and 'by_epoch' in loop:
                raise ValueError('train_cfg: it must have type or by_epoch, not both')
            kind = type_without_library(loop) or (
                'EpochBasedTrainLoop' if loop.pop('by_epoch') else 'IterBasedTrainLoop')
            loop['type'] = {'EpochBasedTrainLoop': EpochBasedTrainLoop,
                            'IterBasedTrainLoop': IterBasedTrainLoop}.get(kind, loop.get('type'))
        return super().build_train_loop(loop)

    @master_only
    def dump_config(self) -> None:
        """Write the resolved config. A training's is written as ``NAME.py`` into the work
        directory, where other commands look for it, unless a file of the user has that name; a
        test's is written beside its log."""
        name = f'{Path(self.cfg.filename).stem if self.cfg.filename else self.timestamp}.py'
        path = Path(self.work_dir, name)
        if self._train_loop is None or (path.exists() and not _is_written_by_runner(path)):
            path = Path(self._log_dir, name)
        cfg = copy.deepcopy(self.cfg)
        if self._resume:
            cfg.resume, cfg.load_from = False, None
        with writing_whole_file(path) as partial:
            partial.write_text(f'{_DUMPED}\n{cfg.pretty_text}\n', encoding='utf-8')

    @staticmethod
    def build_dataloader(dataloader: DataLoader | ConfigType, *args: object, **kwargs: object
                         ) -> DataLoader:
        return _Runner.build_dataloader(checked(dataloader), *args, **kwargs)

    def build_evaluator(self, evaluator: Evaluator | ConfigType | list) -> Evaluator:
        return super().build_evaluator(checked(evaluator))

    def build_val_loop(self, loop: BaseLoop | ConfigType) -> BaseLoop:
        return _with_truth_from_data_set(super().build_val_loop(loop))

    def build_test_loop(self, loop: BaseLoop | ConfigType) -> BaseLoop:
        return _with_truth_from_data_set(super().build_test_loop(loop))

    def train(self) -> torch.nn.Module:
        lock = WorkDirLock(self.work_dir) if is_main_process() else None
        try:
            with self._restoring_signals_and_terminal():
                try:
                    with self._ending_with_workers():
                        return super().train()
                except BaseException as error:
                    self._save_on_early_end(error)
                    raise
        finally:
            if lock is not None:
                lock.release()

    def val(self) -> dict:
        with self._restoring_signals_and_terminal(), self._ending_with_workers():
            return super().val()

    def test(self) -> dict:
        with self._restoring_signals_and_terminal(), self._ending_with_workers():
            return super().test()

    @contextmanager
    def _restoring_signals_and_terminal(self) -> Iterator[None]:
        """Restore signals and the terminal, also after an error."""
        try:
            yield
        finally:
            for hook in self.hooks:
                if getattr(hook, 'ends_after_errors', False):
                    hook.after_run(self)

    @contextmanager
    def _ending_with_workers(self) -> Iterator[None]:
        """If a signal ended the loader's workers too, end the run in the same way as without
        workers."""
        try:
            yield
        except Exception as error:
            if self.interrupt.is_cause_of(error):
                raise Interrupted(128 + self.interrupt.signum) from error
            raise

    def stop_if_interrupted(self) -> None:
        """Called by the training loop between two iterations."""
        if signum := self.interrupt.agreed_signal_or_0():
            raise Interrupted(128 + signum)

    def _save_on_early_end(self, error: BaseException) -> None:
        """When a run ends early, save the last complete iteration if it is not saved yet."""
        asked = isinstance(error, Interrupted) and not isinstance(error, StoppedAtOnce)
        if not asked and not isinstance(error, Exception):
            return  # Such as a loss that is not finite, which would occur again.
        loop, saved = self._train_loop, False
        wanted = not asked or self.cfg.get('save_on_interrupt', True)
        if (wanted and isinstance(loop, ResumableLoop) and loop.is_between_iterations
                and loop.iter > self._saved_iter and self.weights_are_finite()):
            self.validation.put_trained_weights_back(self)
            try:
                self.save_checkpoint(self.work_dir, INTERRUPTED, by_epoch=False,
                                     meta={'epoch': loop.epoch, 'iter': loop.iter})
                if is_main_process():
                    write_last_checkpoint(self.work_dir, osp.join(self.work_dir, INTERRUPTED))
                saved = True
            except Exception as second:  # The first error is the one to show.
                self.logger.warning(f'this could not be saved either: {second}')
        if asked or saved:
            reason = (f'interrupted by {signal.Signals(error.code - 128).name}'
                      if isinstance(error, Interrupted) else f'stopped by {type(error).__name__}')
            last = latest_checkpoint(self.work_dir)
            hint = (f'continue from {last} with --resume auto' if last
                    else 'there is no checkpoint yet, so --resume auto starts from the beginning')
            self.logger.warning(f'{reason} in epoch {self.epoch + 1}, after iteration '
                                f'{self.iter}; {hint}')


def _is_written_by_runner(path: Path) -> bool:
    """Whether a file is a config that a runner wrote, and not one of the user's."""
    with open(path, 'rb') as file:
        return file.read(len(_DUMPED)) == _DUMPED.encode()


def _with_truth_from_data_set(loop: BaseLoop) -> BaseLoop:
    """Connect a loop's metrics to its data set, from which they take their ground truth."""
    names: set[tuple[str, str]] = set()
    for metric in loop.evaluator.metrics:
        if not hasattr(metric, 'take_truth'):
            continue
        for name in ((metric.prefix, each) for each in metric.metrics):
            if name in names:
                raise ValueError(f'two CocoMetric of the evaluator have prefix={name[0]!r} and '
                                 f'metric={name[1]!r}, so their results would have one name; give '
                                 'each its own prefix')
            names.add(name)
        metric.take_truth(loop.dataloader.dataset)
    return loop
