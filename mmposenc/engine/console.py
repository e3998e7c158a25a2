"""The console of a run: first the model, its data and steps, then a line an interval, at the end
the result and where its files are. The log file has all of this and more."""
from __future__ import annotations

import atexit
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..command_line import Prints, of_a_library, printable

#: Functions of LoggerHook whose lines are not those of an interval.
_SUMMARIES = 'after_test_epoch', 'after_run'
#: Warnings and errors of libraries that users cannot act on, or that are worded better here.
_FOR_THE_FILE = re.compile('deprecated|save_param_scheduler|has been overridden after|'
                           'prefix is not set in metric|out of bounds, the drawn|'
                           '`metrics` is an empty dict')
#: Message of mmdet's metrics when no image has a box.
_NO_BOXES = 'results of the whole dataset is empty'


class _Filter(logging.Filter):
    """Passes lines of LoggerHook and of this project, errors, and the first of similar warnings.

    Warnings are similar if they differ only in words with digits, dots or slashes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.found_nothing = False

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        self.found_nothing |= _NO_BOXES in text
        if record.levelno >= logging.WARNING and (_NO_BOXES in text or _FOR_THE_FILE.search(text)):
            return False
        if record.levelno < logging.WARNING:
            return (not of_a_library(sys._getframe(1))
                    or record.module == 'logger_hook' and not text.startswith('Exp name')
                    and record.funcName.startswith('after') and record.funcName not in _SUMMARIES)
        if record.levelno > logging.WARNING:
            return True
        kind = re.sub(r'\S*[\d./]\S*', '*', text)
        self.times[kind] += 1
        self.first.setdefault(kind, text)
        return self.times[kind] == 1

    def again(self) -> list[str]:
        """Lines for the warnings that were repeated since the last call."""
        lines = [f'{count - 1} more like: {self.first[kind].splitlines()[0]}'
                 for kind, count in self.times.items() if count > 1]
        self.times = Counter(dict.fromkeys(self.times, 1))
        return lines


class _Line(logging.Formatter):
    """The time and the message, with "warning:" or "error:" before it if it is one; control
    characters are escapes."""

    def format(self, record: logging.LogRecord) -> str:
        line = '\n'.join(map(printable, super().format(record).split('\n')))
        kind = '' if record.levelno < logging.WARNING else f'{record.levelname.lower()}: '
        return f'{line[:9]}{kind}{line[9:]}'


def quiet(logger: logging.Logger) -> logging.Logger:
    """Gives the console the lines above; at the level DEBUG it gets everything, as mmengine has it.
    """
    for handler in logger.handlers:
        if type(handler) is logging.StreamHandler and handler.level > logging.DEBUG:
            if isinstance(handler.stream, Prints):  # which would look for the library again
                handler.stream = handler.stream.stream
            handler.filters[:] = [_Filter()]
            handler.setFormatter(_Line('%(asctime)s %(message)s', '%H:%M:%S'))
    return logger


class ConsoleHook(Hook):
    """Logs the model, data and steps, repeated warnings, and at the end the result and files."""
    priority = 'LOWEST'

    def __init__(self) -> None:
        self.metrics: dict[str, Any] = {}
        self.drawn = ''

    def before_train(self, runner: Any) -> None:
        loader, val = runner.train_dataloader, runner.val_loop and runner.val_dataloader
        self._begin(runner, 'training', runner.model, [
            f'{len(loader.dataset)} images in batches of '
            f'{getattr(loader.batch_sampler, "batch_size", "several")}'
            + (f', {len(val.dataset)} to validate' if val else ''),
            f'{runner.max_iters} steps' + f' in {runner.max_epochs} epochs'
            * (runner.max_epochs > 1) + f', {runner.iter} of them done' * (runner.iter > 0),
            f'results in {runner.work_dir}, log in {runner.logger.log_file}'])

    def before_test(self, runner: Any) -> None:
        self._begin(runner, 'testing', getattr(runner.model, 'module', runner.model),
                    [f'{len(runner.test_dataloader.dataset)} images'])

    def _begin(self, runner: Any, what: str, model: Any, lines: list[str]) -> None:
        self.metrics = {}
        model = model.module if is_model_wrapper(model) else model
        sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
        count, trained = sum(n for n, _ in sizes), sum(n for n, grad in sizes if grad)
        on = f' on {type(model.backbone).__name__}' if hasattr(model, 'backbone') else ''
        threads = f', threads: {torch.get_num_threads()}' if get_device() == 'cpu' else ''
        for line in (
                f'{what} {type(model).__name__}{on}: {count / 1e6:.2f} million parameters'
                + f', {trained / 1e6:.2f} of them trained' * (trained < count)
                + f'; on {runner.world_size} x {get_device()}{threads}',
                *lines):
            runner.logger.info(line)
        self._log_repeated(runner)

    def _log_repeated(self, runner: Any) -> None:
        for line in [line for each in _filters(runner.logger) for line in each.again()]:
            runner.logger.info(line)

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        self.metrics = metrics or {}
        for each in _filters(runner.logger):
            if each.found_nothing:
                runner.logger.warning(f'nothing was found in any image{threshold(runner.cfg)}')
                each.found_nothing = False

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        self.after_test_epoch(runner, metrics)
        if not self.drawn and any(getattr(hook, 'draw', False) for hook in _drawing(runner)):
            self.drawn = f'{runner.log_dir}/vis_data/vis_image'
            runner.logger.info(f'a first picture: {self.drawn}')

    def after_train(self, runner: Any) -> None:
        folder = Path(runner.work_dir)
        noted = folder / 'last_checkpoint'
        name = Path(noted.read_text().strip()).name if noted.is_file() else None
        self._end(runner, {'weights': name and str(folder / name), 'pictures': self.drawn})

    def after_test(self, runner: Any) -> None:
        metrics = getattr(runner.test_evaluator, 'metrics', [])
        self._end(runner, {
            'predictions': next((each.out_file_path for each in metrics
                                 if hasattr(each, 'out_file_path')), None),
            'pictures': next((folder for hook in _drawing(runner)
                              for name in ('test_out_dir', 'out_dir')
                              if (folder := getattr(hook, name, None))), None)})

    def _end(self, runner: Any, files: dict[str, str | None]) -> None:
        self._log_repeated(runner)
        result = ', '.join(f'{name} {value:.4g}' for name, value in self.metrics.items()
                           if isinstance(value, Real))
        for name, value in {'result': result, **files, 'log': runner.logger.log_file}.items():
            if value:
                runner.logger.info(f'{name}: {value}')


def _drawing(runner: Any) -> list[Hook]:
    return [hook for hook in runner.hooks if 'Visualization' in type(hook).__name__]


def _filters(logger: logging.Logger) -> list[_Filter]:
    return [each for handler in logger.handlers for each in handler.filters
            if isinstance(each, _Filter)]


def least_score(cfg: Any) -> tuple[str, float] | None:
    """The option below which a detector drops boxes, 'model.test_cfg.score_thr', and its value."""
    test_cfg = cfg.model.get('module', cfg.model).get('test_cfg') or {}
    for name, part in (('test_cfg.rcnn', test_cfg.get('rcnn') or {}), ('test_cfg', test_cfg)):
        if 'score_thr' in part:
            return f'model.{name}.score_thr', part['score_thr']
    return None


def threshold(cfg: Any) -> str:
    """The least score of a detector's boxes, as the end of a sentence."""
    found = least_score(cfg)
    return (f': no box scores more than {found[0]}={found[1]}; train for longer, or lower it'
            if found else '')


class Bar:
    """How far something is, and the time that remains: drawn in the terminal of the first process;
    elsewhere as a line every ten seconds, if somebody takes it.

    Args:
        console: where to draw; by default the standard output.
        say: takes the lines.
    """

    def __init__(self, console: Console | None = None,
                 say: Callable[[str], None] | None = None) -> None:
        stdout: Any = sys.stdout
        self.console = console or Console(
            file=stdout.stream if isinstance(stdout, Prints) else stdout)
        self.bar: Progress | None = None
        self.tasks: dict[str, Any] = {}
        self.redirected: list[tuple[Any, Any]] = []
        self.say, self.said_at = say, time.monotonic()

    def begin(self, name: str, total: int, done: int = 0,
              logger: logging.Logger | None = None) -> None:
        """Draws a bar. What is printed and what the logger says goes above it."""
        if not self.console.is_terminal or not is_main_process():
            return
        if self.bar is None:
            self.bar = Progress(
                TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
                TextColumn('eta'), TimeRemainingColumn(), TextColumn('{task.fields[info]}'),
                console=self.console, refresh_per_second=4, redirect_stdout=False)
            self.bar.start()
            atexit.register(self.close)  # an error must not leave the terminal without its cursor
            above = FileProxy(self.console, self.console.file)
            # The logger keeps the stream it was made with.
            for owner in [sys.stdout, *(logger.handlers if logger else ())]:
                if type(owner) is logging.StreamHandler or isinstance(owner, Prints):
                    self.redirected.append((owner, owner.stream))
                    owner.stream = above
        self.tasks[name] = self.bar.add_task(name, total=total, completed=done, info='')

    def advance(self, name: str, done: int, info: str = '') -> None:
        """Updates how much is done."""
        if self.bar is not None:
            self.bar.update(self.tasks[name], completed=done, info=info)
        elif self.say and time.monotonic() > self.said_at + 10:
            self.said_at = time.monotonic()
            self.say(f'{name} {done} {info}')

    def end(self, name: str) -> None:
        """Removes a bar."""
        if self.bar is not None and name in self.tasks:
            self.bar.refresh()
            self.bar.remove_task(self.tasks.pop(name))

    def close(self) -> None:
        """Gives the terminal back."""
        while self.redirected:
            owner, owner.stream = self.redirected.pop()
        if self.bar is not None:
            self.bar.stop()
        self.bar, self.tasks = None, {}
        atexit.unregister(self.close)


class ProgressBarHook(Hook):
    """Draws how far training, validation or testing is where the standard output is a terminal;
    elsewhere LoggerHook prints lines."""
    ends_after_errors = True  # the runner calls its after_run then too
    priority = 'LOW'

    def __init__(self, console: Console | None = None) -> None:
        self.bar = Bar(console)

    def before_train(self, runner: Any) -> None:
        self.bar.begin('train', runner.max_iters, runner.iter, runner.logger)

    def _before_epoch(self, runner: Any, mode: str = 'train') -> None:
        if mode != 'train':
            loader = getattr(runner, f'{mode}_dataloader')
            self.bar.begin(mode, len(loader), logger=runner.logger)

    def _after_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None,
                    mode: str = 'train') -> None:
        if mode != 'train':
            self.bar.advance(mode, batch_idx + 1)
        elif self.bar.tasks:
            epochs = runner.max_epochs
            info = f'epoch {runner.epoch + 1}/{epochs} ' if epochs > 1 else ''
            if outputs and 'loss' in outputs:
                info += f'loss {outputs["loss"].detach().item():.4f}'
            self.bar.advance('train', runner.iter + 1, info)

    def _after_epoch(self, runner: Any, mode: str = 'train') -> None:
        if mode != 'train':
            self.bar.end(mode)

    def after_train(self, runner: Any) -> None:
        self.bar.end('train')

    def after_run(self, runner: Any) -> None:
        self.bar.close()
