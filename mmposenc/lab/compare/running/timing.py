"""How long the runs of a study take, by timing their parts on this machine, and how long they may
train to fit a time."""
from __future__ import annotations

import bisect
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple, cast
from unittest.mock import patch

from mmengine.config import Config
from mmengine.hooks import Hook

from mmposenc import engine
from mmposenc.command_line import in_a_line

from ..statistics.formats import seconds_text
from ..study.lengths import Length, set_length
from ..study.study import Run, Study, read_study
from .extras import make_extras, times
from .runs import FINETUNE, run_config, tested_config
from .workers import Workers

#: Steps and batches that are timed, behind those that are not, and the seconds they may take.
_STEPS, _UNTIMED, _SECONDS = 12, 2, 10.0
#: What extras are sent as; no encoding has the name.
EXTRAS = ''
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
        extras: pictures, figures, diagnosis and the time of a pass, once an encoding.
        epoch: before the first batch of every epoch, where processes that load data begin anew.
    """

    start: float
    step: float
    epoch_steps: float
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

    def run_seconds(self, name: str, length: Length, *, first: bool = False, tests: bool = True,
                    finetuned: Sequence[float] = ()) -> float:
        """Of a run of one encoding; of its first one with the extras. A step of a fine-tune at
        another size is taken to cost as much for a pixel."""
        cost = self.costs[name]
        cfg = Config(dict(train_cfg=dict(self.base.train_cfg)))
        set_length(cfg, length)
        validations = -(-length.number // cfg.train_cfg['val_interval'])
        one = cost.epoch + cost.epoch_steps * cost.step if length.unit == 'epochs' else cost.step
        more = sum(cost.start + length.times(FINETUNE).number * one * factor ** 2
                   for factor in finetuned)
        return (cost.start + length.number * one + validations * cost.validation
                + cost.tests * (tests + bool(finetuned)) + cost.extras * first + more)

    def study_seconds(self, study: Study, length: Length) -> float:
        """Of all runs, in their order, each taken by whoever is free."""
        free = [0.0] * self.jobs
        for run in (*study.tunings(), *study.runs()):
            free.sort()
            free[0] += self.run_seconds(
                run.entry.name, study.length_of(run.entry, length), first=run.first,
                tests=run.rate is None, finetuned=() if run.rate else study.finetuned())
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
                f'--budget: {study.seconds:.0f} s are too few for '
                f'{len(study.runs()) + len(study.tunings())} runs of '
                f'{Length(own.unit, 1)} with {self.jobs} at once; at least '
                f'{_asked((least + spent) / _SHARE)} are required, {_asked(spent)} of them for '
                f'checks and timing; or fewer --encodings, --seeds or --sizes')
        return Length(own.unit, bisect.bisect_right(
            range(1, own.number + 1), limit,
            key=lambda number: self.study_seconds(study, Length(own.unit, number))))


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
    jobs, begin, context = workers.jobs or 1, time.monotonic(), multiprocessing.get_context('spawn')
    found: dict[str, list[Any]] = {}
    processes: dict[Any, Any] = {}
    try:
        for i, share in enumerate(shares(len(study.entries), jobs)):
            answers, end = context.Pipe(duplex=False)
            process = context.Process(target=_quietly, args=(
                end, study.folder, study.folder / f'times{i}', share, time.time()))
            with patch.dict(os.environ, workers.environment(i)):
                process.start()
            end.close()  # then answers end where the process does
            processes[answers] = process
        while processes:
            for ready in connection.wait(list(processes)):
                try:
                    name, told = cast(Any, ready).recv()
                except EOFError:
                    process = processes.pop(ready)
                    process.join()
                    if not process.exitcode:
                        continue
                    name, told = None, 'killed'
                if name is None:
                    raise ValueError(f'a training could not be timed: {told}')
                if name not in found and name != EXTRAS:
                    done, count = len(found.keys() - {EXTRAS}) + 1, len(study.entries)
                    left = (time.monotonic() - begin) / done * (count - done)
                    say(f'  {done} of {count} encodings timed'
                        + (f'; about {seconds_text(left)} left' if left else ''))
                found.setdefault(name, []).append(told)
    finally:
        for process in processes.values():
            process.kill()
            process.join()
    extras = statistics.mean(found.pop(EXTRAS))
    costs = {name: Cost(*map(statistics.mean, zip(*each, strict=True)))._replace(extras=extras)
             for name, each in found.items()}
    return Estimate(costs, jobs, study.base())


def shares(count: int, jobs: int) -> list[list[int]]:
    """Which of so many encodings each process times; all have one at the least, so that as many
    run side by side as there will be."""
    return [list(range(i % count, count, jobs)) for i in range(jobs)]


def time_share(answers: Any, folder: Path, scratch: Path, share: Sequence[int], started: float
               ) -> None:
    """What a process does: times some encodings of a study, and sends the name and :class:`Cost` of
    each, then the seconds of the extras of the last; or None and an error.

    Args:
        answers: the end of a pipe.
        folder: of the study.
        scratch: for all that is written.
        share: numbers of the encodings.
        started: when the process was, by time.time().
    """
    loading, study, name = time.time() - started, read_study(folder), ''
    try:
        for number in share:
            entry = study.entries[number]
            name, run = entry.name, Run(scratch / entry.slug, entry, 0, True, 1.0)
            cost, runner = cost_of(study, run, time.time() - loading)
            answers.send((name, cost))
        answers.send((EXTRAS, _extras_seconds(study, run, runner)))
    except Exception as error:
        answers.send((None, f'{name}: {in_a_line(error)}'))


def _quietly(*args: Any) -> None:
    """:func:`time_share` in a process that prints nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    time_share(*args)


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


def cost_of(study: Study, run: Run, started: float) -> tuple[Cost, Any]:
    """Times the parts of a run in this process, but for the extras; these, and the runner.

    Args:
        study, run: what is trained; none of the files in the run's folder is wanted.
        started: when loading began, by time.time().
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
    return Cost(start=start + hook.first, step=hook.one, epoch_steps=len(loader), epoch=epoch,
                validation=tests[1.0][1],
                tests=sum(sum(each) for each in tests.values())), runner


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
    if 'time' in study.extras:
        times(study, run.entry)
    return time.monotonic() - begin
