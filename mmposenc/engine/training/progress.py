"""A progress bar in a terminal; plain lines, mmengine's own, everywhere else."""
from __future__ import annotations

import atexit
import logging
import sys
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBarHook(Hook):
    """Shows how far training, validation or testing is, and the time that remains.

    Only in the first process and only when the standard output is a terminal; a log file or a
    pipe gets the logger's lines and nothing else. In a terminal those lines scroll above the bar.

    Args:
        console: where to draw; by default the standard output.
    """
    ends_after_errors = True  # the runner calls its after_run then too
    priority = 'LOW'

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout)
        self.enabled = self.console.is_terminal and is_main_process()
        self.bar: Progress | None = None
        self.tasks: dict[str, Any] = {}
        self.redirected: list[tuple[logging.StreamHandler, Any]] = []

    def _open(self, runner: Any) -> None:
        if self.bar is not None:
            return
        self.bar = Progress(TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(),
                            TextColumn('eta'), TimeRemainingColumn(),
                            TextColumn('{task.fields[info]}'),
                            console=self.console, refresh_per_second=4)
        self.bar.start()
        atexit.register(self._close)  # an error must not leave the terminal without its cursor
        # The logger keeps the stream it was made with: send its lines above the bar.
        for handler in runner.logger.handlers:
            if type(handler) is logging.StreamHandler and handler.stream is not sys.stdout:
                self.redirected.append((handler, handler.stream))
                handler.setStream(sys.stdout)

    def _close(self) -> None:
        for handler, stream in self.redirected:
            handler.setStream(stream)
        self.redirected.clear()
        if self.bar is not None:
            self.bar.stop()
        self.bar, self.tasks = None, {}
        atexit.unregister(self._close)

    def _begin(self, runner: Any, name: str, total: int, done: int = 0) -> None:
        if self.enabled:
            self._open(runner)
            self.tasks[name] = self.bar.add_task(name, total=total, completed=done, info='')

    def _end(self, name: str) -> None:
        if self.bar is not None and name in self.tasks:
            self.bar.refresh()
            self.bar.remove_task(self.tasks.pop(name))

    def _advance(self, name: str, done: int, info: str = '') -> None:
        if self.bar is not None and name in self.tasks:
            self.bar.update(self.tasks[name], completed=done, info=info)

    def before_train(self, runner: Any) -> None:
        self._begin(runner, 'train', runner.max_iters, runner.iter)

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        if self.bar is None:
            return
        epochs = runner.max_epochs
        info = f'epoch {runner.epoch + 1}/{epochs} ' if epochs > 1 else ''
        if outputs and 'loss' in outputs:
            info += f'loss {outputs["loss"].detach().item():.4f}'
        self._advance('train', runner.iter + 1, info)

    def after_train(self, runner: Any) -> None:
        self._end('train')

    def before_val_epoch(self, runner: Any) -> None:
        self._begin(runner, 'val', len(runner.val_dataloader))

    def after_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None,
                       outputs: Any = None) -> None:
        self._advance('val', batch_idx + 1)

    def after_val_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        self._end('val')

    def before_test_epoch(self, runner: Any) -> None:
        self._begin(runner, 'test', len(runner.test_dataloader))

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None,
                        outputs: Any = None) -> None:
        self._advance('test', batch_idx + 1)

    def after_test_epoch(self, runner: Any, metrics: dict | None = None) -> None:
        self._end('test')

    def after_run(self, runner: Any) -> None:
        self._close()
