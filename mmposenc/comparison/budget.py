"""How long the runs of a study take, and how long they may train to fit a time."""
from __future__ import annotations

import math
from typing import NamedTuple

from mmengine.config import Config

from .lengths import Length, set_length
from .study import Study

#: Of the budget; the rest is for what differs from run to run.
_SHARE = 0.95


class Cost(NamedTuple):
    """Seconds that the parts of a run of one encoding take.

    Attributes:
        start: before the first step, and before the tests.
        step: of training.
        epoch_steps: steps in an epoch.
        validation: the whole validation set.
        tests: the test set at all sizes.
        extras: pictures, figures and diagnosis, which the encoding's first run makes.
        epoch: before the first batch of every epoch, where processes that load data begin anew.
    """

    start: float
    step: float
    epoch_steps: int
    validation: float
    tests: float
    extras: float = 0.0
    epoch: float = 0.0


class Estimate(NamedTuple):
    """What runs take: by name of the encoding, with ``jobs`` of them at once; and validations by
    length, which is what :func:`set_length` makes of the config."""

    costs: dict[str, Cost]
    jobs: int
    base: Config

    def run_seconds(self, name: str, length: Length, *, first: bool = False) -> float:
        """Of a run of one encoding; of its first one with the extras."""
        cost = self.costs[name]
        cfg = Config(dict(train_cfg=dict(self.base.train_cfg)))
        set_length(cfg, length)
        validations = -(-length.number // cfg.train_cfg['val_interval'])
        one = cost.epoch + cost.epoch_steps * cost.step if length.unit == 'epochs' else cost.step
        return (cost.start + length.number * one + validations * cost.validation + cost.tests
                + cost.extras * first)

    def study_seconds(self, study: Study, length: Length) -> float:
        """Of all runs, in their order, each taken by whoever is free."""
        free = [0.0] * self.jobs
        for run in study.runs():
            free.sort()
            free[0] += self.run_seconds(run.entry.name, length, first=run.first)
        return max(free)

    def longest(self, study: Study, spent: float = 0.0) -> Length:
        """The longest training that fits ``study.seconds``, and no longer than the config's.

        Args:
            study: with ``seconds``.
            spent: seconds of them that are gone, on checks and on timing.

        Raises:
            ValueError: the shortest one does not fit; names the least budget.
        """
        assert study.seconds is not None
        own, limit = study.length, study.seconds * _SHARE - spent
        least = self.study_seconds(study, Length(own.unit, 1))
        if least > limit:
            raise ValueError(
                f'--budget: {study.seconds:.0f} s are too few for {len(study.runs())} runs of '
                f'{Length(own.unit, 1)} with {self.jobs} at once; at least '
                f'{_asked((least + spent) / _SHARE)} are required, {_asked(spent)} of them for '
                f'checks and timing; or fewer --encodings, --seeds or --sizes')
        low, high = 1, own.number
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.study_seconds(study, Length(own.unit, middle)) <= limit
            low, high = (middle, high) if fits else (low, middle - 1)
        return Length(own.unit, low)


def _asked(seconds: float) -> str:
    """Rounded up, as ``--budget`` takes it."""
    return f'{math.ceil(seconds)}s' if seconds < 600 else f'{math.ceil(seconds / 60)}min'
