"""Lets SIGINT and SIGTERM end a run after the current iteration, not in the middle of it."""
from __future__ import annotations

import os
import signal
import time
from types import FrameType

import torch
from mmengine.device import get_device
from mmengine.dist import is_distributed
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import distributed

#: Errors that a batch raises if a dead worker was to load it, or to hand over its memory.
_LOST_BATCH = (RuntimeError, ConnectionError, EOFError, FileNotFoundError)


class Interrupted(SystemExit):
    """Raised to end the program with the exit status that shells give to a signal."""


class StoppedAtOnce(Interrupted):
    """Raised after a second signal, wherever the run was: nothing is saved."""


class InterruptHook(Hook):
    """Records SIGINT and SIGTERM; a second one ends the program at once.

    The training loop asks by :meth:`Runner.stop_if_interrupted` after each iteration, when weights
    and counters fit together; validation and testing may end after any iteration.
    """

    def __init__(self) -> None:
        self.signum = 0
        self.process = 0
        self.previous: dict[int, signal._HANDLER] = {}
        self.asked: torch.Tensor | None = None

    def before_run(self, runner: Runner) -> None:
        self.process = os.getpid()
        for signum in (signal.SIGINT, signal.SIGTERM):
            try:
                self.previous[signum] = signal.signal(signum, self._record_signal)
            # This is not the main thread, so signals are left to whoever handles them.
            except ValueError:
                return

    def after_run(self, runner: Runner) -> None:
        while self.previous:
            signal.signal(*self.previous.popitem())

    def _record_signal(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self.process:
            # This is a worker: its process group got the signal, and it ends together with the run.
            return
        if self.signum:
            raise StoppedAtOnce(128 + signum)
        self.signum = signum
        if hasattr(signal, 'SIGCHLD'):
            # When a worker dies, torch raises an error in the middle of whatever is running.
            # Workers get the signal too if it is sent to the whole process group, so that handler
            # is switched off.
            self.previous.setdefault(signal.SIGCHLD,
                                     signal.signal(signal.SIGCHLD, signal.SIG_DFL))
        print(f'\n{signal.Signals(signum).name}: stopping after this iteration; '
              'send it again to stop at once', flush=True)

    def is_cause_of(self, error: BaseException) -> bool:
        """Whether an error comes from a worker that died by a signal which this process has got
        too, or gets within a second, because schedulers send it to one process after the other."""
        if not self.signum and 'DataLoader worker' in str(error):
            time.sleep(1)
        return bool(self.signum) and isinstance(error, _LOST_BATCH)

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

    after_test_iter = after_val_iter
