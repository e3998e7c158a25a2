"""Rounds of a study that adds seeds until it is known what can be best (``--until-decided``)."""
from __future__ import annotations

from dataclasses import replace
from statistics import mean

from ..statistics.rounds import replay
from ..statistics.summary import margin_of, trained_factor, values_at
from ..study.metrics import metric_of
from ..study.study import Study, planning_lock, read_study, write_study
from .runs import read_record


def next_round(study: Study, jobs: int) -> tuple[Study | None, str]:
    """What comes after the runs of a study: it is read only from the disk, so that a command that
    was killed, and a second one on the same study, continue in the same way.

    Args:
        study: with rounds; of which some runs may not be over.
        jobs: runs at once, for how long a round takes of the budget.

    Returns:
        The study with more seeds of what can still be best, or None; and why, in words.
    """
    with planning_lock(study.folder):
        study = read_study(study.folder)
        records = [read_record(run) for run in study.runs()]
        results = dict(
            metric=vars(metric_of(study.base())), margin=study.margin, rounds=study.rounds,
            sizes=[dict(factor=1.0, trained=True)], runs=records,
            encodings=[dict(name=entry.name) for entry in study.entries])
        told = replay(results, values_at(results, trained_factor(results)), margin_of(results))
        if told.reason:
            return None, told.reason
        more = [n for n in study.rounds if n > told.seeds]
        if any(each['status'] in ('waiting', 'running') for each in records):
            return None, 'Not decided yet: runs are missing.'
        left = [name for name, place in told.places.items() if place.by is None]
        spent = [each['seconds'] for each in records if each.get('seconds')]
        if study.seconds is not None and spent:
            runs = len(left) * (more[0] - told.seeds)
            if (sum(spent) + runs * mean(spent)) / jobs > study.seconds:
                return None, f'Not decided: {runs} more runs do not fit in the budget.'
        known = dict(study.left_out)
        out = {name: known.get(name, told.seeds) for name in told.places if name not in left}
        study = replace(study, left_out=tuple(out.items()), seeds=tuple(
            dict.fromkeys((*study.seeds, *range(more[0])))))
        write_study(study)
        return study, f'{len(left)} encodings can still be best: {more[0]} seeds of each'
