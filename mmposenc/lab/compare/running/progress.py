"""Shows the state of a study on the terminal: as a table that changes, or as plain lines if there
is no terminal."""
from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from statistics import mean
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..statistics.formats import seconds_text, value_text
from ..study.files import Record
from ..study.metrics import Metric
from ..study.study import Run, Study
from .recording import read_progress
from .runs import is_over, read_record
from .schedule import is_taken

#: The seconds between two looks at the disk. What this command starts and ends is shown at once.
_LOOK = 5.0
#: After so many seconds without news of a run, the table says so.
_SILENT = 600


def plain_console(**options: Any) -> Console:
    """A console that prints text as it is. Otherwise rich would take ``[stage 1]`` and ``:x:`` for
    commands."""
    return Console(markup=False, emoji=False, highlight=False, **options)


class RunState(NamedTuple):
    """The state of a run: its record, its progress, whether a process works on it, and whether it
    is over."""

    run: Run
    record: Record
    progress: Record
    taken: bool
    over: bool

    @property
    def value(self) -> float | None:
        """The metric at the trained size."""
        values = [test['value'] for test in self.record['tests'] if test['factor'] == 1]
        return values[0] if values and self.record['status'] != 'diverged' else None

    @property
    def share(self) -> float:
        """The share of the training that is done."""
        total = self.progress.get('total')
        return min(1.0, self.progress.get('done', 0) / total) if total else 0.0


def run_states(study: Study) -> list[RunState]:
    """The states of all runs, read from the disk, so also of those on other machines."""
    standings = []
    for run in study.runs():
        record = read_record(run)
        standings.append(RunState(run, record, read_progress(run), is_taken(run),
                                  is_over(study, record)))
    return standings


def seconds_left(runs: list[RunState], jobs: int) -> float | None:
    """An estimate of the remaining seconds, from the runs whose duration is known; None while there
    is none.

    Args:
        runs: all of them.
        jobs: how many run at once.
    """
    whole = [each.record['seconds'] for each in runs if each.over and each.record.get('seconds')]
    whole += [each.progress['seconds'] / each.share for each in runs
              if not each.over and each.share >= 0.02 and each.progress.get('seconds')]
    if not whole:
        return None
    left = [mean(whole) * (1 - each.share) for each in runs
            if not each.over and (each.taken or each.record['status'] != 'failed')]
    return max([sum(left) / max(1, jobs), *left], default=0.0)


def cell_text(state: RunState, metric: Metric) -> str:
    """What the table shows for a run."""
    status = state.record['status']
    if status in ('diverged', 'failed') and not state.taken:
        return status
    if state.over or (status == 'finished' and not state.taken):
        return value_text(state.value, vars(metric))
    if not state.taken:
        return f'{state.share:.0%} done' if state.share else '...'
    progress, parts = state.progress, []
    if progress.get('phase') == 'train':
        parts.append(f'{progress["epoch"]}/{progress["epochs"]}' if progress.get('epochs') else
                     f'{progress["done"]}/{progress["total"]}')
        if progress.get('loss') is not None:
            parts.append(f'loss {progress["loss"]:.3g}')
        if progress.get('metric') is not None:
            parts.append(value_text(progress['metric'], vars(metric)))
    else:
        parts.append(str(progress.get('phase', 'start')))
    silent = time.time() - progress.get('time', time.time())
    if silent > _SILENT:
        parts.append(f'no word for {seconds_text(silent)}')
    return ', '.join(parts)


def progress_table(study: Study, runs: list[RunState], jobs: int) -> Table:
    """The table of states: one row for each encoding, one column for each seed."""
    metric = study.metric
    shown = Table(title=metric.label, caption=progress_summary(runs, jobs), title_justify='left',
                  caption_justify='left')
    shown.add_column('encoding', overflow='fold')
    for seed in study.seeds:
        shown.add_column(f'seed {seed}', justify='right')
    shown.add_column('mean', justify='right')
    for entry in study.entries:
        of_entry = [each for each in runs if each.run.entry.name == entry.name]
        done = [each.value for each in of_entry
                if each.record['status'] == 'finished' and each.value is not None]
        shown.add_row(entry.label, *(cell_text(each, metric) for each in of_entry),
                      value_text(mean(done) if done else None, vars(metric)))
    return shown


def progress_summary(runs: list[RunState], jobs: int, *, running: bool = True) -> str:
    """A summary such as '4 of 12 runs over, 2 running; about 10 min left'."""
    over = sum(each.over for each in runs)
    text = f'{over} of {len(runs)} runs over'
    if running:
        text += f', {sum(each.taken for each in runs)} running'
    if any(each.record['status'] == 'failed' and not each.taken for each in runs):
        text += ', some failed'
    left = seconds_left(runs, jobs)
    return f'{text}; about {seconds_text(left)} left' if left else text


def short_note(record: Mapping[str, object]) -> str:
    """The note of a run for a terminal. For a run that diverged it says only where; the report has
    the rest."""
    note = str(record['note'])
    return note.partition(';')[0] if record['status'] == 'diverged' else note


class ProgressDisplay:
    """Shows the state of a study until it is closed.

    Args:
        study: what is shown.
        jobs: how many runs there are at once.
        console: where, of :func:`plain_console`; by default the standard output.
    """

    def __init__(self, study: Study, jobs: int, console: Console | None = None) -> None:
        self.study, self.jobs = study, jobs
        self.console = console or plain_console(file=sys.stdout)
        self.live: Live | None = None
        self.looked = 0.0

    def __enter__(self) -> ProgressDisplay:
        if self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=2)
            self.live.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if self.live is not None:
            self.tick(at_once=True)
            self.live.transient = kind is None  # The command prints its last table itself.
            self.live.stop()

    def tick(self, at_once: bool = False) -> None:
        """Bring the table up to date, if it is time."""
        now = time.monotonic()
        if self.live is not None and (at_once or now - self.looked >= _LOOK):
            self.looked = now
            self.live.update(progress_table(self.study, run_states(self.study), self.jobs))

    def print_event(self, run: Run, event: str) -> None:
        """Print what happened to a run, if there is no table."""
        if self.live is not None:
            self.tick(at_once=True)
            return
        runs = run_states(self.study)
        state, text = next(each for each in runs if each.run.folder == run.folder), event
        if event == 'ended':
            status = state.record['status']
            if status == 'finished':
                metric = self.study.metric
                status += f', {metric.label} {value_text(state.value, vars(metric))}'
            text = ': '.join(filter(None, [status, short_note(state.record)]))
        # A run that has just been started does not hold its lock yet, so running ones are not
        # counted.
        self.say(f'{run.entry.name} seed {run.seed}: {text} '
                 f'({progress_summary(runs, self.jobs, running=False)})')

    def say(self, line: str) -> None:
        """Print a line, above the table if there is one."""
        self.console.print(line, soft_wrap=True)
