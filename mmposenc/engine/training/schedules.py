"""Compares the schedules of a training with its length, before the first step."""
from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from mmengine.logging import print_log
from mmengine.optim import _ParamScheduler
from mmengine.runner import IterBasedTrainLoop, Runner

from ..config.nodes import values_with_keys

#: A schedule may be this share longer or shorter than the training, because people round.
_ROUNDED = 0.1


def check_schedules(runner: Runner, described: Any, built: Any) -> None:
    """Check that a training's schedules count in the unit of its loop and fit its length.

    Args:
        runner: of a training whose loop is built.
        described: the config's ``param_scheduler``.
        built: the schedulers; for several optimizers a list each, by their names. A warning tells
            of each that is longer or shorter than the training.

    Raises:
        ValueError: one counts epochs in a loop of iterations, where it would never move.
    """
    problems = {}
    for name, schedulers in built.items() if isinstance(built, dict) else [('', built)]:
        key, nodes = 'param_scheduler', described
        if name and 'type' not in described and isinstance(described, dict):
            key, nodes = f'{key}.{name}', described[name]
        names = [where for where, _ in values_with_keys(key, nodes)]
        named = [(f'{where} ({type(each).__name__})', each)
                 for where, each in zip(names, schedulers, strict=True)]
        problems.update(dict.fromkeys(_problems(runner, named)))
    for problem in problems:
        print_log(problem, 'current', logging.WARNING)


def _problems(runner: Runner, schedulers: list[tuple[str, _ParamScheduler]]) -> Iterator[str]:
    epoch = runner.max_iters / runner.max_epochs
    last: dict[str, tuple[float, str, _ParamScheduler]] = {}
    for name, each in schedulers:
        if getattr(each, 'need_val_args', False):
            if runner._val_loop is None:
                yield f'{name} waits for a validation, and the training has none'
            last[each.param_name] = (runner.max_iters, name, each)
            continue
        if each.by_epoch and isinstance(runner.train_loop, IterBasedTrainLoop):
            raise ValueError(
                f'{name}: by_epoch=True counts epochs, and an IterBasedTrainLoop has none, so '
                f'{each.param_name} would never change; write by_epoch=False, and begin, end and '
                f'all other numbers in steps (of {runner.max_iters} in the training)')
        length = runner.max_epochs if each.by_epoch else runner.max_iters
        unit = 'epochs' if each.by_epoch else 'steps'
        option, needed = _needed_length(each)
        if needed > min(length * (1 + _ROUNDED), each.end):
            what = 'the warm-up of ' if _rises(each) else ''
            yield (f'{what}{name[:-1]}, {option}) is longer than '
                   + (f'the training of {length} {unit}; lower its {option.partition("=")[0]}, or '
                      'train for longer' if needed > length else f'its own end={each.end}'))
        end = each.end * (epoch if each.by_epoch else 1)
        last[each.param_name] = max(last.get(each.param_name, (0, name, each)), (end, name, each),
                                    key=lambda entry: entry[0])
        bottom = each.begin + getattr(each, 'T_max', length)
        if bottom < (1 - _ROUNDED) * min(length, each.end):
            yield (f'{name[:-1]}, {option}) ends at {bottom} of {length} {unit}, after which '
                   f'{each.param_name} rises again; T_max must be the end minus the begin')
    for end, name, each in last.values():
        if end < (1 - _ROUNDED) * runner.max_iters and not _rises(each):
            yield (f'{name[:-1]}, end={each.end}) is shorter than the training: {each.param_name} '
                   f'stays as it is from step {end:.0f} to the last, {runner.max_iters}; set its '
                   f'end{" and T_max" * hasattr(each, "T_max")} to that of the training')


def _needed_length(scheduler: _ParamScheduler) -> tuple[str, float]:
    """The argument of a scheduler that says how many epochs or steps it takes until it has done
    what it is for, and that number; 0 if any will do."""
    begin, end = scheduler.begin, scheduler.end
    if hasattr(scheduler, 'milestones'):
        option, needed = f'milestones={[*scheduler.milestones]}', max(scheduler.milestones)
    elif hasattr(scheduler, 'step_size'):
        option, needed = f'step_size={scheduler.step_size}', scheduler.step_size
    elif hasattr(scheduler, 'T_max'):
        return f'T_max={scheduler.T_max}', scheduler.T_max
    else:
        # These go on as they are, for as long as you like.
        endless = hasattr(scheduler, 'gamma') or getattr(scheduler, 'factor', 0) == 1
        return f'end={end}', 0 if endless or end >= 1e9 else end
    return option, begin + needed


def _rises(scheduler: _ParamScheduler) -> bool:
    """Whether a scheduler is a warm-up."""
    start = getattr(scheduler, 'start_factor', getattr(scheduler, 'factor', 1))
    return (start < getattr(scheduler, 'end_factor', 1)
            or 'Warmup' in type(scheduler).__name__)
