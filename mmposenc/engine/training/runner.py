"""mmengine's runner, with strict loading and careful saving."""
from __future__ import annotations

import copy
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

import torch
from mmengine.device import get_device
from mmengine.dist import get_rank, get_world_size, is_distributed, is_main_process, master_only
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.model import is_model_wrapper
from mmengine.model.test_time_aug import BaseTTAModel
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.runner import BaseLoop
from mmengine.runner import Runner as _Runner
from torch.utils.data import DataLoader

from mmposenc.backbones import load_pretrained
from mmposenc.checkpoint import load_checkpoint
from mmposenc.checkpoint.file_weights import checked_meta
from mmposenc.checkpoint.mmengine_loading import CheckpointLoader
from mmposenc.checkpoint.numbers import check_numbers
from mmposenc.config_types import ConfigType
from mmposenc.terminal.messages import in_a_line
from mmposenc.writing import is_signed, signed, writing_whole_file

from ..config.checked_classes import with_checked_classes
from ..config.checks import check_trained_classes
from ..config.models import hint_to_config_beside
from ..config.nodes import type_without_library
from ..console import ConsoleHook, quieten_console
from .checkpoints import INTERRUPTED, CheckpointHook, latest_checkpoint
from .distributed import join_on_a_cpu, synchronize_norms, unwrapped_model
from .hook_states import EarlyStoppingHook, restore_hooks, states_of_hooks
from .interrupt import Interrupted, InterruptHook
from .layer_decay import with_our_constructor
from .lock import WorkDirLock
from .loops import EpochBasedTrainLoop, IterBasedTrainLoop, ResumableLoop
from .monitored import check_monitored
from .schedules import changed_settings, check_schedules, schedule_settings
from .seeding import with_seeded_batches

#: The first line of a config that a runner writes.
_DUMPED = '# Written by mmposenc: the config of this run with all that it inherits.'
#: This project's loops, by the names that configs use for mmengine's.
_LOOPS: dict[str, type[BaseLoop]] = {'EpochBasedTrainLoop': EpochBasedTrainLoop,
                                     'IterBasedTrainLoop': IterBasedTrainLoop}
#: This project's hooks, by the names that configs use for mmengine's.
_HOOKS = {each.__name__: each for each in (CheckpointHook, EarlyStoppingHook)}


class CheckpointRunner(_Runner):
    """The part of :class:`~mmposenc.engine.training.runner.Runner` that handles checkpoints."""

    interrupt: InterruptHook

    def _set_newest_checkpoint(self) -> None:
        """Find the newest checkpoint if none is named, and take its seed now, because samplers are
        built before it is loaded."""
        self._load_from = self._load_from or latest_checkpoint(self.work_dir, self.cfg)
        self._resume = self._load_from is not None
        if self._load_from is None:
            self.logger.warning(f'--resume auto: no checkpoint in {self.work_dir}, training starts '
                                'from the beginning')
        elif '://' not in self._load_from:
            meta = checked_meta(load_checkpoint(self._load_from, mmap=True).get('meta'),
                                f'the checkpoint {self._load_from}')
            if meta.get('seed') is not None:
                # A new one: the old one may be mmengine's default, which all runners share.
                self._randomness_cfg = {**self._randomness_cfg, 'seed': meta['seed']}
                self.set_randomness(**self._randomness_cfg)

    def load_checkpoint(self, filename: str, map_location: str | torch.device | Callable = 'cpu',
                        *args: object, **kwargs: object) -> dict:
        checkpoint: dict = CheckpointLoader.load_checkpoint(filename, map_location)
        # The file has only weights, as .safetensors do, but EMAHook asks for this key.
        if not isinstance(checkpoint.get('state_dict'), dict):
            checkpoint = {'state_dict': checkpoint}
        name = f'the checkpoint {filename}'
        checkpoint['meta'] = checked_meta(checkpoint.get('meta'), name)
        # Removed, because a resume would run the text of this config as code.
        checkpoint['meta'].pop('config', None)
        model = unwrapped_model(self.model)
        for key in {'state_dict', 'ema_state_dict'} & checkpoint.keys():  # EMAHook loads both.
            if isinstance(checkpoint[key], dict):
                check_numbers({str(key).removeprefix('module.'): value for key, value
                               in checkpoint[key].items()}, name, model.state_dict())
        self.call_hook('after_load_checkpoint', checkpoint=checkpoint)
        same_model = self._resume or self._train_loop is None
        if same_model:
            loop = self._test_loop if self._train_loop is None else self._train_loop
            data = getattr(getattr(loop, 'dataloader', None), 'dataset', None)
            check_trained_classes(checkpoint['meta'],
                                  getattr(data, 'metainfo', {}).get('classes') or (), name)
        load_pretrained(
            model.module if isinstance(model, BaseTTAModel) else model, checkpoint,
            name=name, strict=self.cfg.get('load_strict', True),
            same_model=same_model,
            remedy='; use the config it was trained with'
                   f'{hint_to_config_beside(filename)}, or pass '
                   '--allow-mismatch (load_strict=False in the config) to load only what fits')
        self._has_loaded, self._loaded = True, checkpoint
        return checkpoint

    def resume(self, filename: str, *args: object, **kwargs: object) -> None:
        try:
            super().resume(filename, *args, **kwargs)
            checkpoint, self._loaded = self._loaded, {}
            if isinstance(self._train_loop, ResumableLoop):
                self._train_loop.continue_at(checkpoint['meta'])
            restore_hooks(self, checkpoint['meta'].get('hooks', {}))
            before, now = checkpoint['meta'].get('settings'), schedule_settings(self.cfg)
            if before and before != now:
                self.logger.warning(
                    'the config has other settings than the resumed training, whose optimizer and '
                    f'schedule go on: {"; ".join(changed_settings(before, now))}. To train with '
                    f'those of the config, start anew from {filename} with load_from')
            for name, parameter in unwrapped_model(self.model).named_parameters():
                if name in checkpoint.get('gradients', {}):
                    parameter.grad = checkpoint['gradients'][name].to(parameter)
        except Exception as error:
            if filename in str(error):
                raise
            raise ValueError(f'the checkpoint {filename} is not one from which this training can '
                             f'continue ({in_a_line(error)}): resume one that a training with '
                             'this config wrote, or begin anew from its weights with load_from'
                             ) from error

    def call_hook(self, fn_name: str, **kwargs: object) -> None:
        if fn_name == 'after_val_epoch' and isinstance(self._train_loop, ResumableLoop):
            self._train_loop.mark_validated()
        if fn_name == 'before_train':
            check_monitored(self)
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

    @master_only
    def save_checkpoint(self, out_dir: str, filename: str, *args: object, meta: dict | None = None,
                        by_epoch: bool = True, **kwargs: object) -> None:
        meta, loop = dict(meta or {}), self._train_loop
        meta.setdefault('epoch', self.epoch + by_epoch)
        meta.setdefault('iter', self.iter + (not by_epoch))
        if isinstance(loop, ResumableLoop):
            meta.update(loop.checkpoint_meta(meta['epoch'], meta['iter']),
                        settings=schedule_settings(self.cfg), hooks=states_of_hooks(self.hooks))
        if '://' in str(out_dir):
            super().save_checkpoint(out_dir, filename, *args, meta=meta, by_epoch=by_epoch,
                                    **kwargs)
            return
        path = Path(out_dir, filename)
        try:
            with writing_whole_file(path) as partial:
                super().save_checkpoint(str(path.parent), partial.name, *args, meta=meta,
                                        by_epoch=by_epoch, **kwargs)
        except OSError as error:
            earlier = latest_checkpoint(self.work_dir, self.cfg)
            raise OSError(f'the checkpoint {path} cannot be written: {error.strerror or error}' + (
                '; earlier ones are complete, and --resume continues from them' if earlier else '')
            ) from error

    def stop_if_interrupted(self) -> None:
        """Save and end a training that got a signal. The loop calls this between two iterations."""
        if signum := self.interrupt.agreed_signal_or_0():
            self.save_and_end(signum)

    def save_and_end(self, signum: int) -> NoReturn:
        """Save a training whose weights and counters are those of a complete iteration, log how to
        continue it, and end with the exit status of the signal."""
        self.save_checkpoint(self.work_dir, INTERRUPTED, by_epoch=False,
                             meta={'epoch': self.epoch, 'iter': self.iter})
        self.logger.warning(f'interrupted in epoch {self.epoch + 1}, after iteration {self.iter}; '
                            f'continue from {Path(self.work_dir, INTERRUPTED)} with --resume auto')
        raise Interrupted(128 + signum)


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
    - SIGINT and SIGTERM save and end a training after the current iteration; a second one ends it
      at once.
    - One training a work directory.
    - Distributed runs work on CPUs, through gloo.
    """

    def setup_env(self, env_cfg: dict) -> None:
        if self._distributed and not is_distributed() and get_device() == 'cpu':
            join_on_a_cpu(self._launcher, (env_cfg.get('dist_cfg') or {}).get('timeout', 1800))
        if self._launcher == 'mpi':
            # mmengine reads this variable in every case, and sets it for Slurm alone.
            os.environ.setdefault('LOCAL_RANK', os.environ['OMPI_COMM_WORLD_LOCAL_RANK'])
        super().setup_env(env_cfg)

    def build_logger(self, *args: object, **kwargs: object) -> MMLogger:
        return quieten_console(super().build_logger(*args, **kwargs))

    def wrap_model(self, model_wrapper_cfg: dict | None, model: torch.nn.Module
                   ) -> torch.nn.Module:
        if self.distributed and not is_model_wrapper(model):
            synchronize_norms(model)
            if get_device() == 'cpu':
                # mmengine passes device_ids, which a model on a CPU must not get.
                model_wrapper_cfg = dict(model_wrapper_cfg or dict(
                    broadcast_buffers=False, find_unused_parameters=self.cfg.get(
                        'find_unused_parameters', False)), device_ids=None)
        return super().wrap_model(model_wrapper_cfg, model)

    def register_hooks(self, *args: object, **kwargs: object) -> None:
        super().register_hooks(*args, **kwargs)
        self.interrupt = InterruptHook()
        self.register_hook(self.interrupt, priority='LOWEST')
        self.register_hook(ConsoleHook())

    def register_hook(self, hook: Hook | dict, priority: str | int | None = None) -> None:
        if isinstance(hook, dict) and type_without_library(hook) in _HOOKS:
            hook = {**hook, 'type': _HOOKS[type_without_library(hook)]}
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

    def build_param_scheduler(self, scheduler: Any) -> list | dict:
        built: list | dict = super().build_param_scheduler(scheduler)
        check_schedules(self, built)
        return built

    def build_train_loop(self, loop: BaseLoop | ConfigType) -> BaseLoop:
        if not isinstance(loop, dict) or loop.keys() >= {'type', 'by_epoch'}:
            return super().build_train_loop(loop)  # It refuses both keys together.
        kind = type_without_library(loop) or (
            'EpochBasedTrainLoop' if loop['by_epoch'] else 'IterBasedTrainLoop')
        if kind not in _LOOPS:
            return super().build_train_loop(loop)
        options = {key: value for key, value in loop.items()
                   if key not in ('type', 'by_epoch', '_scope_')}
        return _LOOPS[kind](self, self._seeded_train_loader(), **options)

    def _seeded_train_loader(self) -> DataLoader:
        """Build the loader of the training, in which each sample has a seed of its own."""
        loader = self._train_dataloader
        if isinstance(loader, dict):
            loader = self.build_dataloader(
                loader, seed=self.seed,
                diff_rank_seed=self._randomness_cfg.get('diff_rank_seed', False))
        return with_seeded_batches(loader, self.seed, get_rank(), get_world_size())

    @master_only
    def dump_config(self) -> None:
        """Write the resolved config. A training's is written as ``NAME.py`` into the work
        directory, where other commands look for it, unless a file of the user, or one that was
        changed since, has that name; a test's is written beside its log."""
        name = f'{Path(self.cfg.filename).stem if self.cfg.filename else self.timestamp}.py'
        path = Path(self.work_dir, name)
        of_the_user = os.path.lexists(path) and not (path.is_file() and is_signed(path))
        if self._train_loop is None or of_the_user:
            path = Path(self._log_dir, name)
        cfg = copy.deepcopy(self.cfg)
        if self._resume:
            cfg.resume, cfg.load_from = False, None
        with writing_whole_file(path) as partial:
            partial.write_bytes(signed(f'{_DUMPED}\n{cfg.pretty_text}'.encode()))

    @staticmethod
    def build_dataloader(dataloader: DataLoader | ConfigType, *args: object, **kwargs: object
                         ) -> DataLoader:
        return _Runner.build_dataloader(with_checked_classes(dataloader), *args, **kwargs)

    def build_evaluator(self, evaluator: Evaluator | ConfigType | list) -> Evaluator:
        return super().build_evaluator(with_checked_classes(evaluator))

    def build_val_loop(self, loop: BaseLoop | ConfigType) -> BaseLoop:
        return _with_truth_from_data_set(super().build_val_loop(loop))

    def build_test_loop(self, loop: BaseLoop | ConfigType) -> BaseLoop:
        return _with_truth_from_data_set(super().build_test_loop(loop))

    def train(self) -> torch.nn.Module:
        with ExitStack() as stack:
            if is_main_process():
                stack.callback(WorkDirLock(self.work_dir).release)
            if self._resume:
                self._set_newest_checkpoint()
            stack.enter_context(self.interrupt.handling_signals())
            return super().train()


def _with_truth_from_data_set(loop: BaseLoop) -> BaseLoop:
    """Connect a loop's metrics to its data set, from which they take their ground truth."""
    names: set[tuple[str, str]] = set()
    for metric in loop.evaluator.metrics:
        if not hasattr(metric, 'set_ground_truth'):
            continue
        for name in ((metric.prefix, each) for each in metric.metrics):
            if name in names:
                raise ValueError(f'two CocoMetric of the evaluator have prefix={name[0]!r} and '
                                 f'metric={name[1]!r}, so their results would have one name; give '
                                 'each its own prefix')
            names.add(name)
        metric.set_ground_truth(loop.dataloader.dataset)
    return loop
