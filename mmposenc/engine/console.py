"""What the console shows of a run: first the model, its data and steps, then one line for each
interval, at the end the result and where its files are."""
from __future__ import annotations

import atexit
import logging
import os
import os.path as osp
import re
import sys
from collections import Counter
from numbers import Real
from pathlib import Path
from typing import TextIO

import torch
from mmengine.config import Config
from mmengine.device import get_device
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner
from rich import progress
from rich.console import Console

from ..backbones.structure import encoding_lines
from ..terminal.messages import PrintsToLog, printable
from ..terminal.streams import note_activity
from .first_lines import lower_log_interval, unfinished_warm_up_lines, weights_line

#: Packages whose lines go to the log file, not to the console.
_LIBRARIES = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain')
#: The methods of LoggerHook that write summaries, not the lines of an interval.
_SUMMARIES = 'after_test_epoch', 'after_run'
#: Warnings and errors of libraries that users cannot act on, or that this project words better.
_FOR_THE_FILE = re.compile('deprecated|save_param_scheduler|has been overridden after|'
                           'prefix is not set in metric|out of bounds, the drawn|'
                           '`metrics` is an empty dict')
#: mmengine's names of phases, in words.
_PHASES = {'val': 'validation', 'test': 'test'}
#: mmdet's message when no image has a predicted box.
_NO_BOXES = 'results of the whole dataset is empty'


class _ConsoleFilter(logging.Filter):
    """Passes the lines of LoggerHook and of this project, errors, and the first of several similar
    warnings.

    Warnings are similar if they differ only in words with digits, dots or slashes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.no_boxes = False

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        self.no_boxes |= _NO_BOXES in text
        if record.levelno < logging.WARNING:
            return (not _logged_by_library(record)
                    or record.module == 'logger_hook' and not text.startswith('Exp name')
                    and record.funcName.startswith('after') and record.funcName not in _SUMMARIES)
        if _NO_BOXES in text or _FOR_THE_FILE.search(text):
            return False
        if record.levelno > logging.WARNING:
            return True
        kind = re.sub(r'\S*[\d./]\S*', '*', text)
        self.times[kind] += 1
        self.first.setdefault(kind, text)
        return self.times[kind] == 1

    def take_repeated_lines(self) -> list[str]:
        """Lines that say how often warnings were repeated since the last call."""
        lines = [f'{count - 1} more like: {self.first[kind].splitlines()[0]}'
                 for kind, count in self.times.items() if count > 1]
        self.times = Counter(dict.fromkeys(self.times, 1))
        return lines


def _logged_by_library(record: logging.LogRecord) -> bool:
    """Whether the code that logs a line, or calls mmengine's print_log, belongs to one of the
    libraries."""
    folders = [osp.dirname(str(sys.modules[name].__file__)) for name in _LIBRARIES
               if name in sys.modules]
    return record.pathname.startswith(tuple(folder + os.sep for folder in folders))


class _StandardOutputHandler(logging.StreamHandler):
    """Writes to the current standard output; while a progress bar is drawn, above it."""

    def __init__(self, level: int) -> None:
        logging.Handler.__init__(self, level)
        self.addFilter(_ConsoleFilter())
        self.setFormatter(_LineFormatter('%(asctime)s %(message)s', '%H:%M:%S'))

    @property
    def stream(self) -> TextIO:
        return sys.stdout

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore a reader that has gone away, and write letters that the console lacks as escapes.
        """
        error = sys.exc_info()[1]
        if isinstance(error, UnicodeEncodeError):
            line = self.format(record).encode(error.encoding, 'backslashreplace')
            self.stream.write(line.decode(error.encoding) + self.terminator)
        elif not isinstance(error, OSError):
            super().handleError(record)


class _LogFileHandler(logging.FileHandler):
    """Writes a log file. If that fails it says so once, in one line, and the run continues.

    Args:
        handler: of another class, in whose place it logs.
    """
    failed = False

    def __init__(self, handler: logging.FileHandler) -> None:
        handler.close()
        super().__init__(handler.baseFilename, 'a', 'utf-8', errors='backslashreplace')
        self.setLevel(handler.level)
        self.setFormatter(handler.formatter)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self.failed:
            self.failed = True
            print(f'warning: the log {self.baseFilename} cannot be written: '
                  f'{error.strerror or error}; the work goes on', file=sys.stderr)


class _LineFormatter(logging.Formatter):
    """Formats a line: the time and the message, with "warning:" or "error:" before it if it is one.
    Control characters are written as escapes."""

    def format(self, record: logging.LogRecord) -> str:
        line = '\n'.join(map(printable, super().format(record).split('\n')))
        kind = '' if record.levelno < logging.WARNING else f'{record.levelname.lower()}: '
        return f'{line[:9]}{kind}{line[9:]}'


def quieten_console(logger: logging.Logger) -> logging.Logger:
    """Restrict the console to the lines described above; at the level DEBUG it gets everything, as
    in mmengine. If the log file cannot be written, one line says so."""
    for index, handler in enumerate(logger.handlers):
        if type(handler) is logging.StreamHandler and handler.level > logging.DEBUG:
            logger.handlers[index] = _StandardOutputHandler(handler.level)
        elif type(handler) is logging.FileHandler:
            logger.handlers[index] = _LogFileHandler(handler)
    return logger


class ConsoleHook(Hook):
    """Logs the model, data and steps at the start, repeated warnings, and at the end the result and
    files."""
    priority = 'LOWEST'

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}
        self.drawn = ''

    def before_train(self, runner: Runner) -> None:
        loader, val = runner.train_dataloader, runner.val_loop and runner.val_dataloader
        self._log_start(runner, 'training', [
            weights_line(runner),
            f'{len(loader.dataset)} images in batches of '
            f'{getattr(loader.batch_sampler, "batch_size", "several")}'
            + (f', {len(val.dataset)} to validate' if val else ''),
            f'{runner.max_iters} steps' + f' in {runner.max_epochs} epochs'
            * (runner.max_epochs > 1) + f', {runner.iter} of them done' * (runner.iter > 0),
            f'results in {runner.work_dir}, log in {runner.logger.log_file}',
            *lower_log_interval(runner)])
        for line in unfinished_warm_up_lines(runner):
            runner.logger.warning(line)

    def before_test(self, runner: Runner) -> None:
        images = len(runner.test_dataloader.dataset)
        source = f'weights of {runner._load_from}; ' if runner._load_from else ''
        self._log_start(runner, 'testing', [f'{source}{images} images'])

    def _log_start(self, runner: Runner, what: str, lines: list[str]) -> None:
        """Log the model, its encodings, the device, and these lines."""
        self.metrics = {}
        # The model is wrapped for several processes, or for several views of an image.
        model = getattr(runner.model, 'module', runner.model)
        count = sum(p.numel() for p in model.parameters())
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        on = f' on {type(model.backbone).__name__}' if hasattr(model, 'backbone') else ''
        threads = f', threads: {torch.get_num_threads()}' if get_device() == 'cpu' else ''
        for line in (
                f'{what} {type(model).__name__}{on}: {count / 1e6:.2f} million parameters'
                + f', {trained / 1e6:.2f} of them trained' * (trained < count)
                + f'; on {runner.world_size} x {get_device()}{threads}',
                *encoding_lines(model), *lines):
            runner.logger.info(line)
        self._log_repeated(runner)

    def _before_epoch(self, runner: Runner, mode: str = 'train') -> None:
        self._write_batch_progress(runner, 1, mode)

    def _after_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                    outputs: dict | None = None, mode: str = 'train') -> None:
        self._write_batch_progress(runner, batch_idx + 2, mode)

    def _write_batch_progress(self, runner: Runner, batch: int, mode: str) -> None:
        """Record what the run is doing, for the line that is written after a long silence."""
        if mode == 'train':
            step = min(runner.iter + (batch > 1) + 1, runner.max_iters)
            note_activity(f'training, step {step} of {runner.max_iters}')
        else:
            batches = len(getattr(runner, f'{mode}_dataloader'))
            note_activity(f'{_PHASES[mode]}, batch {min(batch, batches)} of {batches}')

    def _log_repeated(self, runner: Runner) -> None:
        for line in [line for each in _console_filters(runner.logger) for line
                     in each.take_repeated_lines()]:
            runner.logger.info(line)

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        self.metrics = metrics or {}
        for each in _console_filters(runner.logger):
            if each.no_boxes:
                runner.logger.warning(
                    f'nothing was found in any image{score_threshold_remedy(runner.cfg)}')
                each.no_boxes = False

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        self.after_test_epoch(runner, metrics)
        if not self.drawn and any(getattr(hook, 'draw', False) for hook in _drawing_hooks(runner)):
            self.drawn = f'{runner.log_dir}/vis_data/vis_image'
            runner.logger.info(f'a first picture: {self.drawn}')

    def after_train(self, runner: Runner) -> None:
        folder = Path(runner.work_dir)
        last = folder / 'last_checkpoint'
        weights = str(folder / Path(last.read_text().strip()).name) if last.is_file() else None
        self._log_end(runner, {'weights': weights, 'pictures': self.drawn})

    def after_test(self, runner: Runner) -> None:
        metrics = getattr(runner.test_evaluator, 'metrics', [])
        self._log_end(runner, {
            'predictions': next((each.out_file_path for each in metrics
                                 if hasattr(each, 'out_file_path')), None),
            'label maps': next((hook.out_dir for hook in runner.hooks
                                if type(hook).__name__ == 'LabelMapsHook'), None),
            'pictures': next((folder for hook in _drawing_hooks(runner)
                              for name in ('test_out_dir', 'out_dir')
                              if (folder := getattr(hook, name, None))), None)})

    def _log_end(self, runner: Runner, files: dict[str, str | None]) -> None:
        self._log_repeated(runner)
        result = ', '.join(f'{name} {value:.4g}' for name, value in self.metrics.items()
                           if isinstance(value, Real))
        for name, value in {'result': result, **files, 'log': runner.logger.log_file}.items():
            if value:
                runner.logger.info(f'{name}: {value}')


def _drawing_hooks(runner: Runner) -> list[Hook]:
    return [hook for hook in runner.hooks if 'Visualization' in type(hook).__name__]


def _console_filters(logger: logging.Logger) -> list[_ConsoleFilter]:
    return [each for handler in logger.handlers for each in handler.filters
            if isinstance(each, _ConsoleFilter)]


def score_threshold_option(cfg: Config) -> tuple[str, float] | None:
    """The option with the score below which a detector drops boxes ('model.test_cfg.score_thr'),
    and its value."""
    test_cfg = cfg.model.get('module', cfg.model).get('test_cfg') or {}
    for name, part in (('test_cfg.rcnn', test_cfg.get('rcnn') or {}), ('test_cfg', test_cfg)):
        if 'score_thr' in part:
            return f'model.{name}.score_thr', part['score_thr']
    return None


def score_threshold_remedy(cfg: Config) -> str:
    """The end of a sentence: the smallest score that a detector's boxes have."""
    if (option := score_threshold_option(cfg)) is None:
        return ''
    return f': no box scores more than {option[0]}={option[1]}; train for longer, or lower it'


def progress_bar(console: Console | None = None) -> progress.Progress:
    """A progress bar with the time that remains, in the terminal of the first process; elsewhere
    nothing is drawn.

    Args:
        console: where to draw; by default the standard output.
    """
    console = console or Console()
    return progress.Progress(
        progress.TextColumn('{task.description}'), progress.BarColumn(),
        progress.MofNCompleteColumn(), progress.TextColumn('eta'), progress.TimeRemainingColumn(),
        progress.TextColumn('{task.fields[info]}', markup=False),
        console=console, refresh_per_second=4,
        disable=not (console.is_terminal and is_main_process()))


class ProgressBarHook(Hook):
    """Draws the progress of training, validation and testing if the standard output is a terminal;
    elsewhere LoggerHook prints lines."""
    ends_after_errors = True  # Tells the runner to call after_run also after an error.
    priority = 'LOW'

    def __init__(self, console: Console | None = None) -> None:
        self.bar = progress_bar(console)
        self.tasks: dict[str, progress.TaskID] = {}

    def before_train(self, runner: Runner) -> None:
        self._start_bar('train', runner.max_iters, runner.iter)

    def _start_bar(self, name: str, total: int, done: int = 0) -> None:
        if not self.bar.disable and not self.bar.live.is_started:
            self.bar.start()
            atexit.register(self.bar.stop)  # After an error the terminal must get its cursor back.
            sys.stdout = PrintsToLog(sys.stdout)
        self.tasks[name] = self.bar.add_task(name, total=total, completed=done, info='')

    def _before_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if mode != 'train':
            self._start_bar(mode, len(getattr(runner, f'{mode}_dataloader')))

    def _after_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                    outputs: dict | None = None, mode: str = 'train') -> None:
        if self.bar.disable:
            return
        if mode != 'train':
            self.bar.update(self.tasks[mode], completed=batch_idx + 1)
            return
        info = f'epoch {runner.epoch + 1}/{runner.max_epochs} ' * (runner.max_epochs > 1)
        if outputs and 'loss' in outputs:
            info += f'loss {outputs["loss"].detach().item():.4f}'
        self.bar.update(self.tasks['train'], completed=runner.iter + 1, info=info)

    def _after_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if mode != 'train':
            self._end_bar(mode)

    def after_train(self, runner: Runner) -> None:
        self._end_bar('train')

    def _end_bar(self, name: str) -> None:
        self.bar.remove_task(self.tasks.pop(name))
        self.bar.refresh()

    def after_run(self, runner: Runner) -> None:
        self.bar.stop()
        atexit.unregister(self.bar.stop)
        while self.tasks:
            self.bar.remove_task(self.tasks.popitem()[1])
