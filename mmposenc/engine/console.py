"""What the console shows of a run: first the model, its data and steps, then the lines of
mmengine's LoggerHook, at the end the result and where its files are."""
from __future__ import annotations

import logging
import os
import os.path as osp
import re
import sys
import time
from collections.abc import Sized
from datetime import timedelta
from functools import partial
from numbers import Real
from pathlib import Path
from typing import cast

import torch
from mmengine.device import get_device
from mmengine.hooks import Hook, LoggerHook
from mmengine.runner import Runner

from ..attention.building import parameter_counts
from ..backbones.encodings_of_model import encoding_lines
from ..encodings.build import listed
from ..terminal.messages import SILENCE, counted, in_a_line, printable

#: Packages whose lines go to the log file, not to the console.
_LIBRARIES = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain')
#: The methods of LoggerHook that write summaries, not the lines of an interval.
_SUMMARIES = 'after_test_epoch', 'after_run'
#: Warnings and errors of libraries that users cannot act on, or that this project words better.
_FOR_THE_FILE = re.compile('deprecated|save_param_scheduler|has been overridden after|'
                           'prefix is not set in metric|out of bounds, the drawn|'
                           '`metrics` is an empty dict|results of the whole dataset is empty|'
                           'torch.meshgrid: in an upcoming|To copy construct from a tensor|'
                           "'pin_memory' argument is set as true but no accelerator")
#: What the lines of LoggerHook say twice, or of objects that the data do not have.
_NEEDLESS = re.compile(r'base_lr: (\S+) (?=lr: \1\b)| *\S+mAP\S*: -1\.0000')
#: The characters of a line that the console shows; a list of 1,000 classes has 30,000.
_LONGEST = 1000
#: A training has at least this number of lines, if it has as many steps.
_LINES = 5


class _ConsoleFilter(logging.Filter):
    """Passes the lines of LoggerHook and of this project, errors, and the first of several similar
    warnings.

    Warnings are similar if they differ only in words with digits, dots or slashes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.warned: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.levelno < logging.WARNING:
            return (not _is_logged_by_library(record)
                    or record.module == 'logger_hook' and not text.startswith('Exp name')
                    and record.funcName.startswith('after') and record.funcName not in _SUMMARIES)
        kind = re.sub(r'\S*[\d./]\S*', '*', text)
        is_new = record.levelno > logging.WARNING or kind not in self.warned
        self.warned.add(kind)
        return is_new and not _FOR_THE_FILE.search(text)


def _is_logged_by_library(record: logging.LogRecord) -> bool:
    """Whether the code that logs a line, or calls mmengine's print_log, belongs to one of the
    libraries."""
    folders = [osp.dirname(str(sys.modules[name].__file__)) for name in _LIBRARIES
               if name in sys.modules]
    return record.pathname.startswith(tuple(folder + os.sep for folder in folders))


class _LineFormatter(logging.Formatter):
    """Formats a line: the time and the message, with "warning:" or "error:" before it if it is one.
    Control characters are written as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        line = '\n'.join(
            each if len(each) <= _LONGEST else f'{each[:_LONGEST]} ... (the log has the rest)'
            for each in map(printable, _NEEDLESS.sub('', super().format(record)).split('\n')))
        kind = '' if record.levelno < logging.WARNING else f'{record.levelname.lower()}: '
        return f'{line[:9]}{kind}{line[9:]}'


def quieten_console(logger: logging.Logger) -> logging.Logger:
    """Restrict the console to the lines described above; at the level DEBUG it gets everything, as
    in mmengine."""
    for handler in logger.handlers:
        if type(handler) is logging.StreamHandler and handler.level > logging.DEBUG:
            handler.addFilter(_ConsoleFilter())
            handler.setFormatter(_LineFormatter('%(asctime)s %(message)s', '%H:%M:%S'))
        if isinstance(handler, logging.FileHandler):
            handler.handleError = partial(_say_once, handler)  # type: ignore[method-assign]
    return logger


def _say_once(handler: logging.FileHandler, record: logging.LogRecord) -> None:
    """Say that a log cannot be written, where logging would print a traceback for each line."""
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    print(f'warning: the log {handler.baseFilename} cannot be written '
          f'({in_a_line(cast(Exception, sys.exc_info()[1]))}); the run goes on', file=sys.stderr)


class ConsoleHook(Hook):
    """Logs the model, data and steps at the start, and at the end the result and its files."""
    priority = 'LOWEST'

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.started, self.first_step = 0.0, 0

    def before_train(self, runner: Runner) -> None:
        loader, val = runner.train_dataloader, runner.val_loop and runner.val_dataloader
        steps = f'{runner.max_iters} steps'
        if runner.max_epochs > 1:
            steps += f' in {runner.max_epochs} epochs'
        if runner.iter > 0:
            steps += f', {runner.iter} of them done'
        self._log_start(runner, 'training', [
            _weights_line(runner),
            f'data: {_data_text(loader.dataset)}, in batches of '
            f'{getattr(loader.batch_sampler, "batch_size", "several")}'
            + (f'; validation: {_data_text(val.dataset)}' if val else ''),
            steps, f'results in {runner.work_dir}, log in {runner.logger.log_file}'])
        _lower_log_interval(runner)
        self.started, self.first_step = time.monotonic(), runner.iter

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                         outputs: dict | None = None) -> None:
        # The first line of LoggerHook may be a minute away.
        if self.started and (seconds := time.monotonic() - self.started) > SILENCE:
            done = runner.iter + 1 - self.first_step
            left = timedelta(seconds=round(seconds / done * (runner.max_iters - runner.iter - 1)))
            runner.logger.info(f'{counted(done, "step")} in {seconds:.0f} s; about {left} left')
            self.started = 0.0

    def before_test(self, runner: Runner) -> None:
        source = f'weights of {runner._load_from}; ' if runner._load_from else ''
        self._log_start(runner, 'testing', [
            f'{source}data: {_data_text(runner.test_dataloader.dataset)}'])

    def _log_start(self, runner: Runner, what: str, lines: list[str]) -> None:
        """Log the model, its encodings, the device, and these lines."""
        # The model is wrapped for several processes, or for several views of an image.
        model = getattr(runner.model, 'module', runner.model)
        counts = parameter_counts(model)
        count = sum(counts.values())
        trained = sum(number for each, number in counts.items() if each.requires_grad)
        on = f' on {type(model.backbone).__name__}' if hasattr(model, 'backbone') else ''
        part = f', {trained / 1e6:.2f} of them trained' if trained < count else ''
        threads, many = counted(torch.get_num_threads(), 'thread'), runner.world_size > 1
        device = (counted(runner.world_size, f'{get_device()} device') if get_device() != 'cpu' else
                  f'the CPU, {threads}' + f' in each of {runner.world_size} processes' * many)
        first = (f'{what} {type(model).__name__}{on}: {count / 1e6:.2f} million parameters{part}; '
                 f'on {device}')
        for line in (first, *encoding_lines(model), *lines):
            runner.logger.info(line)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        self.metrics = metrics or {}

    after_test_epoch = after_val_epoch

    def after_train(self, runner: Runner) -> None:
        last = Path(runner.work_dir, 'last_checkpoint')
        weights = last.read_text().strip() if last.is_file() else None
        pictures = Path(runner.log_dir, 'vis_data', 'vis_image')
        self._log_end(runner, {'weights': weights,
                               'validation pictures': pictures if pictures.is_dir() else None})

    def after_test(self, runner: Runner) -> None:
        self._log_end(runner, {})

    def _log_end(self, runner: Runner, files: dict[str, object]) -> None:
        result = ', '.join(f'{name} {value:.4g}' for name, value in self.metrics.items()
                           if isinstance(value, Real) and not _NEEDLESS.search(
                               f'{name}: {value:.4f}'))
        for name, value in {'result': result, **files, 'log': runner.logger.log_file}.items():
            if value:
                runner.logger.info(f'{name}: {value}')


def _data_text(data: Sized) -> str:
    """Say where the images of a data set lie and how many there are, within wrappers too."""
    if isinstance(several := getattr(data, 'datasets', None), list):
        return ' and '.join(map(_data_text, several))
    inner = data
    while isinstance(inside := getattr(inner, 'dataset', None), Sized):
        inner = inside
    prefix = getattr(inner, 'data_prefix', None) or {}
    folder = prefix if isinstance(prefix, str) else prefix.get('img', prefix.get('img_path'))
    times = len(data) // max(len(inner), 1)
    count = counted(len(inner) if times > 1 else len(data), 'image')
    return (f'{folder or type(inner).__name__}, {count}'
            + f', each {times} times an epoch' * (times > 1))


def _weights_line(runner: Runner) -> str:
    """Say where the weights of a training come from."""
    source = runner._load_from
    if source is not None:
        return f'continues {source}' if runner._resume else f'starts from the weights of {source}'
    configs = [cfg for module in getattr(runner.model, 'module', runner.model).modules()
               for cfg in listed(getattr(module, 'init_cfg', None)) if isinstance(cfg, dict)]
    files = [str(cfg.get('checkpoint')) for cfg in configs
             if cfg.get('type') in ('Pretrained', 'PretrainedInit')]
    return (f'weights of {", ".join(files)}; all others are random' if files else
            'starts from random weights')


def _lower_log_interval(runner: Runner) -> None:
    """Let LoggerHook write a few lines also about a training that has fewer steps than one of its
    intervals."""
    for hook in runner.hooks:
        if isinstance(hook, LoggerHook) and runner.max_iters < hook.interval:
            hook.interval = max(1, runner.max_iters // _LINES)
