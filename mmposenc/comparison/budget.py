"""How long the runs of a study take on this machine, and how long they may train to fit a time."""
from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmengine.config import Config
from mmengine.hooks import Hook

from .. import engine
from .encodings import Entry
from .files import read_json, write_json
from .lengths import Length, set_length
from .runs import run_config, tested_config
from .study import Run, Study, read_study
from .workers import LocalWorkers, Workers

#: Steps and batches that are timed, behind those that are not, and the seconds they may take.
_STEPS, _UNTIMED, _SECONDS = 12, 2, 20.0
#: Of the budget; the rest is for what differs from run to run.
_SHARE = 0.95


class Cost(NamedTuple):
    """Seconds that the parts of a run of one encoding take.

    Attributes:
        start: before the first step, and before the tests.
        step: of training.
        epoch_steps: steps in an epoch.
        validation: the whole validation set.
        tests: all test sets, at all sizes.
    """

    start: float
    step: float
    epoch_steps: int
    validation: float
    tests: float


class Estimate(NamedTuple):
    """What runs take: by name of the encoding, with ``jobs`` of them at once; and validations by
    length, which is what :func:`set_length` makes of the config."""

    costs: dict[str, Cost]
    jobs: int
    base: Config

    def run_seconds(self, name: str, length: Length) -> float:
        """Of a run of one encoding."""
        cost = self.costs[name]
        cfg = Config(dict(train_cfg=dict(self.base.train_cfg)))
        set_length(cfg, length)
        validations = -(-length.number // cfg.train_cfg['val_interval'])
        steps = length.number * (cost.epoch_steps if length.unit == 'epochs' else 1)
        return cost.start + steps * cost.step + validations * cost.validation + cost.tests

    def study_seconds(self, study: Study, length: Length) -> float:
        """Of all runs, in their order, each taken by whoever is free."""
        free = [0.0] * self.jobs
        for run in study.runs():
            free.sort()
            free[0] += self.run_seconds(run.entry.name, length)
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
                f'{(least + spent) / _SHARE:.0f}s are required, or fewer --encodings, --seeds or '
                '--sizes')
        low, high = 1, own.number
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.study_seconds(study, Length(own.unit, middle)) <= limit
            low, high = (middle, high) if fits else (low, middle - 1)
        return Length(own.unit, low)


def measure(study: Study, workers: Workers) -> Estimate:
    """Times some steps and some test images of each encoding, on this machine, as many processes
    side by side as there will be runs; each on one GPU, where there are GPUs.

    Args:
        study: written to its folder, which is not the one of the real runs.
        workers: who will carry the runs out; of a cluster one at a time is timed.

    Raises:
        ValueError: an encoding can't be trained or tested; with the error of its process.
    """
    jobs = workers.jobs or 1
    outs = [study.folder / f'times{i}.json' for i in range(jobs)]
    started, processes = time.time(), []
    for i, out in enumerate(outs):
        command = [sys.executable, '-m', __name__, str(study.folder), str(out), str(started)]
        environment = {**os.environ, **(workers.environment(i) if isinstance(
            workers, LocalWorkers) else {})}
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment,
                                          stderr=subprocess.STDOUT, text=True))
    try:
        told = [process.communicate()[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, told, strict=True):
        if process.returncode:
            lines = [line for line in text.splitlines() if line.strip()]
            raise ValueError(f'a training could not be timed: {lines[-1] if lines else "killed"}')
    found = [read_json(out) for out in outs]
    costs = {name: Cost(*(statistics.mean(each[name][i] for each in found)
                          for i in range(len(Cost._fields)))) for name in found[0]}
    return Estimate({name: cost._replace(epoch_steps=round(cost.epoch_steps))
                     for name, cost in costs.items()}, jobs, study.base())


class _Enough(BaseException):
    """Ends what is timed."""


class _Times(Hook):
    """Times the first iterations, and ends the run behind them."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def _moment(self) -> None:
        self.moments.append(time.monotonic())
        taken = self.moments[-1] - self.moments[0]
        count = len(self.moments)
        if count > _UNTIMED + _STEPS or (count > _UNTIMED + 1 and taken > _SECONDS):
            raise _Enough

    def before_train(self, runner: Any) -> None:
        self.moments.append(time.monotonic())

    before_test = before_train

    def after_train_iter(self, runner: Any, *args: Any, **kwargs: Any) -> None:
        self._moment()

    def after_test_iter(self, runner: Any, *args: Any, **kwargs: Any) -> None:
        self._moment()

    @property
    def seconds(self) -> float:
        """Of an iteration: the median, without the first ones where there are others."""
        gaps = [b - a for a, b in zip(self.moments, self.moments[1:], strict=False)]
        return statistics.median(gaps[_UNTIMED:] or gaps)


def cost_of(study: Study, entry: Entry, started: float, folder: Path) -> Cost:
    """Times the parts of a run in this process.

    Args:
        study, entry: what is trained.
        started: when loading began, by time.time().
        folder: for the files of the run, of which none is wanted.
    """
    run = Run(folder / entry.slug, entry, 0, False)
    cfg = run_config(study, run, 'train')
    engine.prepare_training(cfg)
    runner = engine.build_runner(cfg)
    hook = _Times()
    runner.register_hook(hook)
    steps = len(runner.train_dataloader)
    start = time.time() - started
    try:
        runner.train()
    except _Enough:
        pass
    tests = {factor: _test_seconds(study, run, factor) for factor in study.sizes}
    return Cost(start, hook.seconds, steps, tests[1.0], sum(tests.values()))


def _test_seconds(study: Study, run: Run, factor: float) -> float:
    begin = time.monotonic()
    runner = engine.build_runner(tested_config(study, run, factor))
    hook = _Times()
    runner.register_hook(hook)
    built = time.monotonic() - begin
    try:
        runner.test()
    except _Enough:
        pass
    return built + hook.seconds * len(runner.test_dataloader)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path)
    parser.add_argument('out', type=Path)
    parser.add_argument('started', type=float)
    args = parser.parse_args(argv)
    study = read_study(args.folder)
    loading = time.time() - args.started
    found = {entry.name: cost_of(study, entry, time.time() - loading, args.out.with_suffix(''))
             for entry in study.entries}
    write_json(args.out, found)


if __name__ == '__main__':
    main()
