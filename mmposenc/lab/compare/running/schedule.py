"""Carries out the runs of a study side by side.

Whoever has a run holds a lock in its folder, so commands on several machines may share a study.
"""
from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from mmposenc.engine.training.lock import check_unlocked
from mmposenc.terminal.messages import in_a_line

from ..study.files import write_json
from ..study.study import Run, Study
from .runs import TAKEN, read_record
from .workers import KILL, Handle, Workers

_LAST_LINES = 12
#: The seconds that runs have to save themselves before they are killed.
_GRACE = 60


def is_taken(run: Run) -> bool:
    """Whether a process, on this machine or another one, works on a run."""
    try:
        check_unlocked(run.folder)
    except ValueError:
        return True
    return False


def carry_out_all(study: Study, workers: Workers, complete: Callable[[Run], bool],
                  tell: Callable[[Run | None, str], None], wait: float = 0.3,
                  look: float = 5.0) -> None:
    """Carries out all runs that are not complete, each once; waits for those that others have.

    Args:
        study: whose runs.
        workers: where.
        complete: whether nothing is to be done for a run, looked up on disk.
        tell: called with a run and 'started', 'ended' or that another command has it, and with
            (None, '') now and then.
        wait: seconds between two looks at the runs that this call started.
        look: seconds between two looks at those that wait, unless one ended: only others change
            them, and each look reads all their files.
    """
    waiting = [run for run in study.runs() if not complete(run)]
    active: list[tuple[Run, Handle]] = []
    elsewhere: set[Path] = set()
    due = 0.0
    try:
        while waiting or active:
            ended = []
            for run, handle in [pair for pair in active if pair[1].poll() is not None]:
                due = 0.0
                active.remove((run, handle))
                if not complete(run) and is_taken(run):  # Another command was faster.
                    waiting.append(run)
                    tell(run, 'another command has it')
                    continue
                try:
                    _record_crash(run, handle.poll() or 0)
                # The disk may be full, and have room again for the next run.
                except OSError as error:
                    tell(run, f'ended, which could not be saved: {in_a_line(error)}')
                    continue
                ended.append(run)
            now = time.monotonic()
            starting: list[Run] = []
            for run in list(waiting) if now >= due else ():
                if is_taken(run):
                    elsewhere.add(run.folder)
                elif complete(run) or (run.folder in elsewhere and _has_ended(run)):
                    waiting.remove(run)
                    ended.append(run)
                elif workers.jobs is None or len(active) + len(starting) < workers.jobs:
                    waiting.remove(run)
                    starting.append(run)
            if starting:
                active += zip(starting, workers.start(starting), strict=True)
                for run in starting:
                    tell(run, 'started')
            due = now + look if now >= due else due
            # This comes after other runs were started, which need not wait for the report.
            for run in ended:
                tell(run, 'ended')
            tell(None, '')
            time.sleep(wait)
    finally:
        _stop_and_wait([handle for _, handle in active])


def _stop_and_wait(handles: list[Handle]) -> None:
    """Ask runs to save and end. A second Ctrl-C, or too long a wait, ends them at once."""
    try:
        for handle in handles:
            handle.stop(signal.SIGTERM)
        end = time.monotonic() + _GRACE
        while time.monotonic() < end and any(handle.poll() is None for handle in handles):
            time.sleep(0.1)
    finally:
        for handle in handles:
            if handle.poll() is None:
                handle.stop(KILL)


def _has_ended(run: Run) -> bool:
    """Whether some command brought a run to its end, good or bad, during this call."""
    return read_record(run)['status'] not in ('waiting', 'running')


def _record_crash(run: Run, status: int) -> None:
    """Write into the record of a run that its process ended without doing so itself."""
    record = read_record(run)
    over = record['status'] == 'finished'
    if record['status'] in ('waiting', 'running') or (over and status not in (0, TAKEN)):
        how = (f'killed by {signal.Signals(-status).name}' if status < 0
               else f'ended with status {status}')
        if status == -KILL:
            how += ' (the system kills so where memory runs out)'
        if over:
            how += ', its results are kept'
        said = [line.strip() for line in last_printed_lines(run)
                if line.strip()] if status > 0 else []
        how = ': '.join([how, *said[-1:]])
        write_json(run.record_file, {**record, 'status': 'finished' if over else 'failed',
                                     'note': f'{how}; see {run.folder / "log.txt"}'})


def last_printed_lines(run: Run) -> list[str]:
    """The last lines that a run printed."""
    path = run.folder / 'log.txt'
    if not path.is_file():
        return []
    with open(path, 'rb') as file:
        file.seek(max(0, path.stat().st_size - 8192))
        return file.read().decode(errors='replace').splitlines()[-_LAST_LINES:]
