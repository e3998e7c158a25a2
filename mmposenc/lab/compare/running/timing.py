"""How long the runs of a study take, by timing their parts on this machine, and how long they may
train to fit a time.

    python -m mmposenc.lab.compare.running.timing FOLDER OUT --started TIME --entries 0 2 4
"""
from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mmengine.config import Config
from mmengine.hooks import Hook

from mmposenc import engine
from mmposenc.command_line import in_a_line

from ..statistics.formats import seconds_text
from ..study.files import read_json, write_json
from ..study.lengths import Length, set_length
from ..study.study import Run, Study, read_study
from .extras import make_extras
from .runs import run_config, tested_config
from .workers import LocalWorkers, Workers

#: Steps and batches that are timed, behind those that are not, and the seconds they may take.
_STEPS, _UNTIMED, _SECONDS = 12, 2, 10.0
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


def measure(study: Study, workers: Workers, say: Callable[[str], None] = print) -> Estimate:
    """Times some steps and some test images of each encoding, on this machine, as many processes
    side by side as there will be runs; each on one GPU, where there are GPUs.

    Each process takes its share of the encodings, and times pictures, figures and diagnosis of the
    last of them: those of the others are taken to cost as much.

    Args:
        study: written to its folder, which is not the one of the real runs.
        workers: who will carry the runs out; of a cluster one at a time is timed.
        say: takes a line of how far it is.

    Raises:
        ValueError: an encoding can't be trained or tested; names it, with the error.
    """
    jobs, started = workers.jobs or 1, time.time()
    outs = [study.folder / f'times{i}.json' for i in range(jobs)]
    processes: list[subprocess.Popen] = []
    try:
        for i, (out, share) in enumerate(zip(outs, shares(len(study.entries), jobs), strict=True)):
            given = workers.environment(i) if isinstance(workers, LocalWorkers) else {}
            with open(out.with_suffix('.log'), 'w') as log:
                processes.append(subprocess.Popen(
                    [sys.executable, '-m', __name__, str(study.folder), str(out), '--started',
                     str(started), '--entries', *map(str, share)],
                    stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **given}))
        _wait(processes, outs, len(study.entries), say)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = [read_json(out) for out in outs]
    extras = statistics.mean(each.pop('extras') for each in found)
    costs = {}
    for entry in study.entries:
        own = [each[entry.name] for each in found if entry.name in each]
        parts = {part: statistics.mean(each[part] for each in own) for part in own[0]}
        costs[entry.name] = Cost(**{**parts, 'epoch_steps': round(parts['epoch_steps'])},
                                 extras=extras)
    return Estimate(costs, jobs, study.base())


def shares(count: int, jobs: int) -> list[list[int]]:
    """Which of so many encodings each process times; all have one at the least, so that as many
    run side by side as there will be."""
    return [list(range(i % count, count, jobs)) for i in range(jobs)]


def _wait(processes: list[subprocess.Popen], outs: list[Path], count: int,
          say: Callable[[str], None]) -> None:
    """Until all have ended, or one has failed."""
    told, started = 0, time.monotonic()
    while True:
        states = [process.poll() for process in processes]
        for out, state in zip(outs, states, strict=True):
            if state:
                text = out.with_suffix('.log').read_text(errors='replace')
                lines = [line for line in text.splitlines() if line.strip()]
                raise ValueError('a training could not be timed: '
                                 f'{lines[-1] if lines else "killed"}')
        done = len({name for out in outs for name in read_json(out) or {} if name != 'extras'})
        if done > told:
            told, left = done, (time.monotonic() - started) / done * (count - done)
            say(f'  {done} of {count} encodings timed'
                + (f'; about {seconds_text(left)} left' if left else ''))
        if None not in states:
            return
        time.sleep(0.2)


class _Enough(BaseException):
    """Ends what is timed."""


class _Times(Hook):
    """Times the first iterations, and ends the run behind them.

    Attributes:
        gaps: seconds of each iteration, with the loading of its batch.
    """

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self._since = 0.0

    def before_train_epoch(self, runner: Any) -> None:
        # Anew in every epoch and behind a validation, which is counted by itself: where an epoch is
        # a step or two, the median would be that of steps with validations.
        self._since = time.monotonic()

    before_test_epoch = after_val = before_train_epoch

    def after_train_iter(self, runner: Any, *args: Any, **kwargs: Any) -> None:
        since, self._since = self._since, time.monotonic()
        self.gaps.append(self._since - since)
        count = len(self.gaps)
        if count >= _UNTIMED + _STEPS or (count > _UNTIMED and sum(self.gaps) > _SECONDS):
            raise _Enough

    after_test_iter = after_train_iter

    def seconds(self, iterations: int) -> float:
        """Of so many iterations: as long as the median, but for the first one."""
        return self.first + iterations * self.one

    @property
    def one(self) -> float:
        """Of an iteration: the median, without the first ones where there are others."""
        return statistics.median(self.gaps[_UNTIMED:] or self.gaps)

    @property
    def first(self) -> float:
        """What the first iteration takes more."""
        return max(0.0, self.gaps[0] - self.one)


def cost_of(study: Study, run: Run, started: float, found: dict[str, Any], *,
            extras: bool = False) -> None:
    """Times the parts of a run in this process.

    Args:
        study, run: what is trained; none of the files in the run's folder is wanted.
        started: when loading began, by time.time().
        found: gets the numbers of a :class:`Cost` by the encoding's name,
        extras: and with it those of 'extras'.
    """
    cfg = run_config(study, run, 'train')
    engine.prepare_training(cfg)
    runner = engine.build_runner(cfg)
    hook = _Times()
    runner.register_hook(hook)
    loader = runner.train_dataloader
    start = time.time() - started
    anew = loader.num_workers and not loader.persistent_workers
    begin = time.monotonic()
    if anew:
        next(iter(loader))
    epoch = time.monotonic() - begin
    try:
        runner.train()
    except _Enough:
        pass
    tests = {factor: _test_seconds(study, run, factor) for factor in study.sizes}
    found[run.entry.name] = dict(
        start=start + hook.first, step=hook.one, epoch_steps=len(loader), epoch=epoch,
        validation=tests[1.0][1], tests=sum(sum(each) for each in tests.values()))
    if extras:
        found['extras'] = _extras_seconds(study, run, runner)


def _test_seconds(study: Study, run: Run, factor: float) -> tuple[float, float]:
    """Before a test and during it."""
    begin = time.monotonic()
    runner = engine.build_runner(tested_config(study, run, factor))
    hook = _Times()
    runner.register_hook(hook)
    built = time.monotonic() - begin
    try:
        runner.test()
    except _Enough:
        pass
    return built, hook.seconds(len(runner.test_dataloader))


def _extras_seconds(study: Study, run: Run, runner: Any) -> float:
    weights = run.folder / 'weights.pth'
    runner.save_checkpoint(str(run.folder), weights.name, save_optimizer=False,
                           save_param_scheduler=False, by_epoch=False)
    begin = time.monotonic()
    make_extras(study, run, str(weights))
    return time.monotonic() - begin


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path)
    parser.add_argument('out', type=Path)
    parser.add_argument('--started', type=float, required=True)
    parser.add_argument('--entries', type=int, nargs='+', required=True)
    args = parser.parse_args(argv)
    study = read_study(args.folder)
    found: dict[str, Any] = {}
    loading = time.time() - args.started
    for number in args.entries:
        entry = study.entries[number]
        run = Run(args.out.with_suffix('') / entry.slug, entry, 0, True)
        try:
            cost_of(study, run, time.time() - loading, found, extras=number == args.entries[-1])
        except Exception as error:
            traceback.print_exc()
            sys.exit(f'{entry.name}: {in_a_line(error)}')
        write_json(args.out, found)


if __name__ == '__main__':
    main()
