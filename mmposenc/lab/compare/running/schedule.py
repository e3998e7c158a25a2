"""Carries out the runs of a study side by side.

Whoever has a run holds a lock in its folder, so commands on several machines may share a study.
"""
from __future__ import annotations

import signal
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from ..study.study import Run, Study
from .recording import is_over, is_taken, read_record, write_record
from .workers import TAKEN, Workers

#: Seconds between two looks at the jobs of this command, and at the records on the disk, unless a
#: job has ended.
_WAIT, _WAIT_FOR_OTHERS = 0.3, 5.0


def carry_out_all(study: Study, workers: Workers, tell: Callable[[Run | None], None]) -> None:
    """Carries out all runs of a study that are not over, each once, and waits for those that other
    commands carry out.

    Args:
        study: the study.
        workers: the processes or jobs that do it.
        tell: called with each run that has ended, and with None now and then.
    """
    jobs: list[tuple[Run, Any]] = []
    tried: set[Path] = set()
    due = 0.0
    try:
        while True:
            if time.monotonic() >= due:
                due = time.monotonic() + _WAIT_FOR_OTHERS
                waiting = [run for run in study.runs() if run.folder not in tried
                           and not is_over(study, read_record(run))]
                if not waiting and not jobs:
                    return
                active = [run.folder for run, _ in jobs]
                room = None if workers.jobs is None else workers.jobs - len(jobs)
                free = list(islice((run for run in waiting if run.folder not in active
                                    and not is_taken(run)), room))
                if free:  # submitit warns of an array without jobs.
                    jobs += zip(free, workers.start(free), strict=True)
            for run, job in [pair for pair in jobs if pair[1].done()]:
                due = 0.0
                jobs.remove((run, job))
                status = _exit_status(job)
                if status != TAKEN:  # Otherwise another command was faster.
                    tried.add(run.folder)
                    _record_crash(run, status)
                    tell(run)
            tell(None)
            time.sleep(_WAIT)
    finally:
        workers.stop()


def _exit_status(job: Any) -> int:
    """The exit status of a job that is done; 1 where the cluster lost it."""
    try:
        return int(job.result())
    except Exception:  # Errors of the cluster: a time limit, or a node that went away.
        return 1


def _record_crash(run: Run, status: int) -> None:
    """Write into the record of a run that its process ended without doing so itself."""
    record = read_record(run)
    if record['status'] not in ('waiting', 'running'):
        return
    how = f'killed by {signal.Signals(-status).name}' if status < 0 else (
        f'ended with status {status}')
    if how == 'killed by SIGKILL':
        how += ' (the system kills so where memory runs out)'
    log = run.folder / 'log.txt'
    printed = log.read_text(errors='replace').split('\n') if log.is_file() and status > 0 else []
    last = [f': {line.strip()}' for line in printed if line.strip()][-1:]
    write_record(run, record, status='failed', note=f'{how}{"".join(last)}; see {log}')
