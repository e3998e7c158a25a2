"""Records the learning curve and the cost of a training, also if it is killed and resumed."""
from __future__ import annotations

import os
import platform
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from mmengine.dist import get_world_size, is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

import mmposenc

from ..study.files import Record, read_json, write_json
from ..study.study import Run
from .workers import num_usable_cores

#: The number of points in the curve of a training that counts iterations.
_POINTS = 50
#: The key under which checkpoints hold what this hook knows.
_KEY = 'comparison'


class RecordHook(Hook):
    """Notes the mean loss and the metric by epoch, time and memory, in every checkpoint.

    A run that was killed continues from a checkpoint, and so do these numbers: their final values
    do not depend on kills. CPU seconds are those of the training process and of those that
    load its data, validation included; None where several train together, and on a system
    that does not tell.

    Args:
        run: whose progress file is kept up to date.
        metric: the key of validations that is recorded.
        by_epoch: a point of the curve an epoch; else one every fiftieth of the iterations.
    """
    priority = 'BELOW_NORMAL'  # It runs before checkpoints are written.

    def __init__(self, run: Run, metric: str, by_epoch: bool) -> None:
        self.run, self.metric, self.by_epoch = run, metric, by_epoch
        self.curve: list[Record] = []
        self.loss_sum, self.loss_count = 0.0, 0
        self.before: Record = {'seconds': 0.0, 'cpu_seconds': 0.0, 'peak_bytes': 0}
        self.started = self.written = 0.0
        self.cpu_started: float | None = 0.0

    def before_train(self, runner: Runner) -> None:
        self.started = time.monotonic()
        self.cpu_started = cpu_seconds() if get_world_size() == 1 else None

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                         outputs: Record | None = None) -> None:
        if outputs and 'loss' in outputs:
            # This waits for an accelerator, but mmengine's own hook waits for the same number.
            self.loss_sum += torch.as_tensor(outputs['loss']).detach().item()
            self.loss_count += 1
        done = runner.iter + 1
        if not self.by_epoch and (done % max(1, runner.max_iters // _POINTS) == 0
                                  or done == runner.max_iters):
            self._add_point('iteration', done)
        self._write_progress(runner, done)

    def after_train_epoch(self, runner: Runner) -> None:
        if self.by_epoch:
            self._add_point('epoch', runner.epoch + 1)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        if self.curve and metrics and self.metric in metrics:
            self.curve[-1]['metric'] = float(metrics[self.metric])
        self._write_progress(runner, runner.iter, at_once=True)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        checkpoint['meta'][_KEY] = {'curve': [dict(point) for point in self.curve],
                                    'loss_sum': self.loss_sum, 'loss_count': self.loss_count,
                                    **self.costs()}

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        held = checkpoint.get('meta', {}).get(_KEY)
        if held is not None and runner._resume:
            self.curve = [dict(point) for point in held['curve']]
            self.loss_sum, self.loss_count = held['loss_sum'], held['loss_count']
            self.before = {key: held[key] for key in self.before}

    def costs(self) -> Record:
        """Seconds, CPU seconds and peak memory so far, including those before a resume."""
        before, start, now = self.before['cpu_seconds'], self.cpu_started, cpu_seconds()
        unknown = before is None or start is None or now is None
        return {'seconds': self.before['seconds'] + time.monotonic() - self.started,
                'cpu_seconds': None if unknown else before + now - start,
                'peak_bytes': max(self.before['peak_bytes'] or 0, peak_bytes()) or None}

    def _mean_loss(self) -> float | None:
        """The mean loss since the last point of the curve."""
        return self.loss_sum / self.loss_count if self.loss_count else None

    def _last(self, key: str) -> float | None:
        return next((each[key] for each in reversed(self.curve) if each[key] is not None), None)

    def _add_point(self, unit: str, at: int) -> None:
        self.curve.append({unit: at, 'loss': self._mean_loss(), 'metric': None})
        self.loss_sum, self.loss_count = 0.0, 0

    def _write_progress(self, runner: Runner, done: int, at_once: bool = False) -> None:
        now = time.monotonic()
        if not is_main_process() or (now - self.written < 1 and not at_once):
            return
        self.written = now
        loss = self._mean_loss() if self.loss_count else self._last('loss')
        write_progress(self.run, {
            'phase': 'train', 'done': done, 'total': runner.max_iters,
            'epochs': runner.max_epochs if self.by_epoch else None,
            'epoch': min(runner.epoch + 1, runner.max_epochs), 'loss': loss,
            'metric': self._last('metric'), 'seconds': self.costs()['seconds'],
            'time': time.time()})


def read_progress(run: Run) -> Record:
    """Read the progress that a run has written; nothing if it can't be read."""
    try:
        return read_json(run.progress_file) or {}
    except ValueError:
        return {}


def write_progress(run: Run, progress: Record) -> None:
    """Write the progress of a run. Only tables need it, so a full disk does not end the run here.
    """
    with suppress(OSError):
        write_json(run.progress_file, progress, safe=False)


def versions_and_machine() -> Record:
    """Versions, and the machine; the memory is that of the accelerator, or on a CPU that of the
    whole process."""
    on_gpu = torch.cuda.is_available()
    return {'torch': torch.__version__, 'mmposenc': mmposenc.__version__,
            'python': platform.python_version(), 'cores': num_usable_cores(),
            'device': torch.cuda.get_device_name() if on_gpu else _cpu_name(),
            'memory': 'accelerator' if on_gpu else 'process'}


def _cpu_name() -> str:
    try:
        lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.machine()


def cpu_seconds() -> float | None:
    """The CPU time of this process and its children, also of those that still run; None without
    /proc."""
    ended = os.times()
    lists = list(Path('/proc/self/task').glob('*/children'))
    if not lists:
        return None
    total, ticks = sum(ended[:4]), os.sysconf('SC_CLK_TCK')
    for child in {pid for path in lists for pid in path.read_text().split()}:
        # The name in brackets comes first; utime and stime are the 14th and 15th of all fields.
        try:
            fields = Path('/proc', child, 'stat').read_text().rpartition(')')[2].split()
        except OSError:  # The process has ended in the meantime.
            continue
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def peak_bytes() -> int:
    """The peak memory of this process in bytes: of its accelerator if there is one, otherwise of
    the machine; 0 if the system does not say."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    try:
        import resource
    except ImportError:  # This is Windows.
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == 'darwin' else 1024)
