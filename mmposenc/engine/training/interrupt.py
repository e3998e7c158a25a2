"""Lets SIGINT and SIGTERM end a training after the current iteration, not in the middle of it."""
from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from mmengine.device import get_device
from mmengine.dist import is_distributed
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import distributed

#: Errors of a loader whose workers ended by the signal that this process has got, too.
LOST_BATCH = (RuntimeError, ConnectionError, EOFError, FileNotFoundError)


class Interrupted(SystemExit):
    """Raised to end the program with the exit status that shells give to a signal."""


class InterruptHook(Hook):
    """Records SIGINT and SIGTERM while a training runs; a second one has its usual effect.

    The training loop asks by :meth:`Runner.stop_if_interrupted` after each iteration, when weights
    and counters fit together; a validation ends after any iteration.
    """

    def __init__(self) -> None:
        self.signum = 0
        self.process = 0
        self.previous: dict[int, signal._HANDLER] = {}
        self.asked: torch.Tensor | None = None

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """A context in which this hook handles signals. Before and after it, others do."""
        self.process = os.getpid()
        try:
            for signum in (signal.SIGINT, signal.SIGTERM):
                self.previous[signum] = signal.signal(signum, self._record_signal)
        except ValueError:  # This is not the main thread; signals are left to whoever handles them.
            pass
        try:
            yield
        finally:
            self._give_signals_back()

    def _give_signals_back(self) -> None:
        while self.previous:
            signal.signal(*self.previous.popitem())

    def _record_signal(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self.process:
            # This is a worker: its process group got the signal, and it ends together with the run.
            return
        self.signum = signum
        self._give_signals_back()
        if hasattr(signal, 'SIGCHLD'):
            # When a worker dies, torch raises an error in the middle of whatever is running.
            # Workers get the signal too if it is sent to the whole process group, so that handler
            # is switched off.
            self.previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        print(f'\n{signal.Signals(signum).name}: stopping after this iteration; '
              'send it again to stop at once', flush=True)

    def agreed_signal_or_0(self) -> int:
        """The signal that all processes have agreed on, or 0.

        A process that stopped without the others would leave the others waiting for its gradients.
        They exchange the signal in every iteration and read it in the next, when it has long
        arrived.
        """
        if not is_distributed():
            return self.signum
        signum = int(self.asked.item()) if self.asked is not None else 0
        self.asked = torch.tensor([self.signum], device=get_device())
        distributed.all_reduce(self.asked, distributed.ReduceOp.MAX)
        return signum

    def after_val_iter(self, runner: Runner, *args: object, **kwargs: object) -> None:
        if self.signum:
            raise Interrupted(128 + self.signum)
