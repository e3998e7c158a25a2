"""Shows on the terminal how far a study is."""
from __future__ import annotations

import time
from statistics import mean

from ..statistics.formats import seconds_text, value_at_trained_size, value_text
from ..study.records import Record
from ..study.study import Run, Study
from .recording import is_over, read_record

#: The seconds between two lines.
_LINE = 60.0


def progress_summary(study: Study, jobs: int) -> str:
    """A summary such as '4 of 12 runs over; about 10 min left'."""
    records = [read_record(run) for run in study.runs()]
    over = sum(is_over(study, record) for record in records)
    text = f'{over} of {len(records)} runs over'
    if failed := sum(record['status'] == 'failed' for record in records):
        text += f', {failed} failed'
    left = seconds_left(study, records, jobs)
    return f'{text}; about {seconds_text(max(round(left), 1))} left' if left else text


def seconds_left(study: Study, records: list[Record], jobs: int) -> float | None:
    """An estimate of the remaining seconds of training, from the runs whose speed is known; None
    while there is none.

    Args:
        study: which.
        records: those of all its runs.
        jobs: how many run at once.
    """
    whole = [record['train_seconds'] / record['share'] for record in records
             if record['train_seconds'] and record['share'] >= 0.02]
    # The first steps of a run are slow, so those that are over say it best.
    whole = [record['train_seconds'] for record in records if record['share'] == 1] or whole
    left = [1 - record['share'] for record in records
            if record['status'] != 'failed' and not is_over(study, record)]
    if not whole or not left:
        return None
    return mean(whole) * max(sum(left) / jobs, *left)


class ProgressLines:
    """Prints how far a study is: a line when a run has ended, and a line a minute.

    Args:
        study: which.
        jobs: how many runs there are at once.
    """

    def __init__(self, study: Study, jobs: int) -> None:
        self.study, self.jobs = study, jobs
        self.printed = time.monotonic()

    def show(self, ended: Run | None = None) -> None:
        """Print a line about a run that has ended, or about all runs if it is time."""
        if ended is None and time.monotonic() - self.printed < _LINE:
            return
        self.printed = time.monotonic()
        line = progress_summary(self.study, self.jobs)
        if ended is not None:
            record, metric = read_record(ended), self.study.base.metric
            text = record['status']
            if text == 'finished':
                value = value_text(value_at_trained_size(record), metric)
                text += f', {metric.label} {value}'
            note = f': {record["note"]}' if record['note'] else ''
            line = f'{ended.entry.name} seed {ended.seed}: {text}{note} ({line})'
        print(line, flush=True)
