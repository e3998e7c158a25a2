"""What is known of a run: ``run.json``, which the run's process writes and everybody else reads."""
from __future__ import annotations

import platform
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

import mmposenc
from mmposenc.config_types import ImageSize
from mmposenc.engine.config.nodes import flat_config
from mmposenc.engine.training.lock import check_unlocked
from mmposenc.terminal.messages import printable
from mmposenc.user_classes import is_file_class, text_hash

from ..study.records import RUN, Record, read_json_if_any, write_json
from ..study.study import Run, Study
from .workers import num_usable_cores

#: The key under which checkpoints hold what the hook knows.
_KEY = 'comparison'


def read_record(run: Run) -> Record:
    """The record of a run; a new one where the run has not begun."""
    unknown = dict.fromkeys(('parameters', 'train_seconds', 'train_cpu_seconds', 'peak_bytes',
                             'checkpoint', 'environment'))
    new: Record = {**unknown, 'status': 'waiting', 'note': '', 'share': 0.0,
                   'tests': [], 'class_hashes': {}}
    read = {**new, **(read_json_if_any(run.record_file, RUN) or {}), 'encoding': run.entry.name,
            'seed': run.seed}
    return {**read, 'note': printable(read['note'])}


def write_record(run: Run, record: Record, *, safe: bool = True, **changes: object) -> None:
    """Change the record of a run, and write it.

    Args:
        run: which.
        record: changed in place.
        safe: whether the write must succeed; what only tables show may be lost on a full disk.
        changes: values of the record.
    """
    record.update(changes)
    with suppress(*([] if safe else [OSError])):
        write_json(run.record_file, record, safe=safe)


def class_hashes(cfg: Config) -> dict[str, str]:
    """A hash of the text of each class of the user's that a config names, by its type."""
    return {value: text_hash(value) for key, value in flat_config(cfg.to_dict()).items()
            if key.rpartition('.')[2] == 'type' and is_file_class(value)}


def sizes_left_to_test(study: Study, record: Record) -> list[ImageSize]:
    """The sizes of a study that a record has no test of, the trained size first."""
    tested = [test['factor'] for test in record['tests']]
    return sorted((at for at in study.sizes if at not in tested), key=lambda at: at != 1)


def is_over(study: Study, record: Record) -> bool:
    """Whether nothing is left to do: tested at all sizes, or diverged."""
    return record['status'] == 'diverged' or (
        record['status'] == 'finished' and not sizes_left_to_test(study, record))


def is_taken(run: Run) -> bool:
    """Whether a process, on this machine or another one, works on a run."""
    with suppress(ValueError):
        check_unlocked(run.folder)
        return False
    return True


class RecordHook(Hook):
    """Records how far a training is, and what time and memory it takes, also in every checkpoint.

    A run that was killed continues from a checkpoint, and so do these numbers. CPU seconds are
    those of the training process, validation included, and not of the processes that load its data.

    Args:
        run: which.
        record: the record of the run; kept up to date, and written about once a second.
    """
    priority = 'BELOW_NORMAL'  # It runs before checkpoints are written.

    def __init__(self, run: Run, record: Record) -> None:
        self.run, self.record = run, record
        self.costs: Record = {'train_seconds': 0.0, 'train_cpu_seconds': 0.0, 'peak_bytes': None}
        self.clocks = (0.0, 0.0)
        self.written = 0.0

    def before_train(self, runner: Runner) -> None:
        self.clocks = (time.monotonic(), time.process_time())

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                         outputs: object = None) -> None:
        if time.monotonic() - self.written > 1:
            self.update_record(share=(runner.iter + 1) / runner.max_iters)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        self._add_elapsed_costs()
        checkpoint['meta'][_KEY] = dict(self.costs)

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        held = checkpoint.get('meta', {}).get(_KEY)
        if held is not None and runner._resume:
            self.costs = dict(held)

    def update_record(self, **changes: object) -> None:
        """Put the costs so far into the record of the run, with other changes, and write it."""
        self._add_elapsed_costs()
        self.written = time.monotonic()
        write_record(self.run, self.record, safe=False, **self.costs, **changes)

    def _add_elapsed_costs(self) -> None:
        """Add what has passed since the last call, so that pauses between kills count nothing."""
        now = (time.monotonic(), time.process_time())
        self.costs['train_seconds'] += now[0] - self.clocks[0]
        self.costs['train_cpu_seconds'] += now[1] - self.clocks[1]
        self.costs['peak_bytes'] = max(self.costs['peak_bytes'] or 0, peak_bytes()) or None
        self.clocks = now


def versions_and_machine() -> Record:
    """Versions, and the machine; the memory is that of the accelerator, or on a CPU that of the
    whole process."""
    on_gpu = torch.cuda.is_available()
    return {'torch': torch.__version__, 'mmposenc': mmposenc.__version__,
            'python': platform.python_version(), 'cores': num_usable_cores(),
            'device': torch.cuda.get_device_name() if on_gpu else cpu_name(),
            'memory': 'accelerator' if on_gpu else 'process'}


def cpu_name() -> str:
    """The name of the processor, as far as the system says it."""
    with suppress(OSError):
        for line in Path('/proc/cpuinfo').read_text().splitlines():
            if line.startswith('model name'):
                return line.partition(':')[2].strip()
    return platform.machine()


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
