"""Shows the state of a study on the terminal: as a table that changes, or as plain lines if there
is no terminal."""
from __future__ import annotations

import sys
import time
from statistics import mean
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from ..statistics.formats import seconds_text, value_text
from ..study.files import Record
from ..study.study import Run, Study
from .recording import is_over, is_taken, read_record, value_at_trained_size

#: The seconds between two looks at the disk for the table, and between two lines without one.
_LOOK, _LINE = 5.0, 60.0


def plain_console(**options: Any) -> Console:
    """A console that prints text as it is. Otherwise rich would take ``[stage 1]`` and ``:x:`` for
    commands."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def cell_text(study: Study, run: Run, record: Record) -> str:
    """What the table shows for a run."""
    status = record['status']
    if status in ('diverged', 'failed'):
        return str(status)
    if status == 'finished':
        return value_text(value_at_trained_size(record), vars(study.metric))
    if status == 'waiting' or not is_taken(run):
        return f'{record["share"]:.0%} done' if record['share'] else '...'
    return f'{record["share"]:.0%}' if record['phase'] == 'train' else str(record['phase'])


def progress_table(study: Study, jobs: int) -> Table:
    """The table of all runs, read from the disk: one row for each encoding, one column for each
    seed."""
    shown = Table(title=study.metric.label, caption=progress_summary(study, jobs),
                  title_justify='left', caption_justify='left')
    shown.add_column('encoding', overflow='fold')
    for name in (*(f'seed {seed}' for seed in study.seeds), 'mean'):
        shown.add_column(name, justify='right')
    for entry in study.entries:
        records = [(run, read_record(run)) for run in study.runs() if run.entry == entry]
        values = [value_at_trained_size(record) for _, record in records
                  if record['status'] == 'finished']
        known = [value for value in values if value is not None]
        shown.add_row(entry.label, *(cell_text(study, run, record) for run, record in records),
                      value_text(mean(known) if known else None, vars(study.metric)))
    return shown


def progress_summary(study: Study, jobs: int) -> str:
    """A summary such as '4 of 12 runs over; about 10 min left'."""
    records = [read_record(run) for run in study.runs()]
    over = sum(is_over(study, record) for record in records)
    text = f'{over} of {len(records)} runs over'
    if failed := sum(record['status'] == 'failed' for record in records):
        text += f', {failed} failed'
    left = seconds_left(study, records, jobs)
    return f'{text}; about {seconds_text(left)} left' if left else text


def seconds_left(study: Study, records: list[Record], jobs: int) -> float | None:
    """An estimate of the remaining seconds of training, from the runs whose speed is known; None
    while there is none.

    Args:
        study: which.
        records: of all its runs.
        jobs: how many run at once.
    """
    whole = [record['train_seconds'] / record['share'] for record in records
             if record['train_seconds'] and record['share'] >= 0.02]
    left = [1 - record['share'] for record in records
            if record['status'] != 'failed' and not is_over(study, record)]
    if not whole or not left:
        return None
    return mean(whole) * max(sum(left) / jobs, *left)


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
        self.live = Live(console=self.console, refresh_per_second=2, transient=True)
        self.looked = time.monotonic()

    def __enter__(self) -> ProgressDisplay:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def show(self, ended: Run | None = None) -> None:
        """Bring the table up to date, if it is time or a run has ended; without a table, print a
        line."""
        wait = _LOOK if self.console.is_terminal else _LINE
        if ended is None and time.monotonic() - self.looked < wait:
            return
        self.looked = time.monotonic()
        if self.console.is_terminal:
            self.live.update(progress_table(self.study, self.jobs))
            return
        line = progress_summary(self.study, self.jobs)
        if ended is not None:
            record, metric = read_record(ended), self.study.metric
            text = record['status']
            if text == 'finished':
                value = value_text(value_at_trained_size(record), vars(metric))
                text += f', {metric.label} {value}'
            note = f': {record["note"]}' if record['note'] else ''
            line = f'{ended.entry.name} seed {ended.seed}: {text}{note} ({line})'
        self.say(line)

    def say(self, line: str) -> None:
        """Print a line, above the table if there is one."""
        self.console.print(line, soft_wrap=True)
