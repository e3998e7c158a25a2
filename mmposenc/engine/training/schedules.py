"""Compares the schedules of a training with its length, before the first step, and with those of
the training that it resumes."""
from __future__ import annotations

from collections.abc import Mapping

from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.optim import _ParamScheduler
from mmengine.runner import IterBasedTrainLoop, Runner

from mmposenc.openmmlab.logs import warn

from ..config.nodes import flat_config, value_at

#: The sections of a config whose values a checkpoint puts back.
_SECTIONS = ('optim_wrapper', 'param_scheduler', 'train_cfg')
#: A schedule may be this share longer or shorter than the training, because people round.
_ROUNDED = 0.1
#: Arguments that say how many epochs or steps a scheduler takes from its begin to its last value.
_WHOLE = 'T_max', 'total_steps', 'periods'


def check_schedules(runner: Runner, built: list | dict[str, list]) -> None:
    """Check that a training's schedules count in the unit of its loop and fit its length.

    Args:
        runner: that of a training whose loop is built.
        built: the schedulers; for several optimizers a list each, by their names. A warning tells
            of each that is longer or shorter than the training.

    Raises:
        ValueError: one counts epochs in a loop of iterations, where it would never move; or a
            OneCycleLR would stop the training before its end.
    """
    for name, schedulers in built.items() if isinstance(built, dict) else [('', built)]:
        last: dict[str, tuple[float, str]] = {}
        for number, each in enumerate(schedulers):
            if getattr(each, 'need_val_args', False):  # It goes by the results of validations.
                continue
            key = f'param_scheduler.{name}.{number}'.replace('..', '.')
            where = f'{key} ({type(each).__name__}'
            if each.by_epoch and isinstance(runner.train_loop, IterBasedTrainLoop):
                raise ValueError(
                    f'{where}): by_epoch=True counts epochs, and an IterBasedTrainLoop has none, '
                    f'so {each.param_name} would never change; write by_epoch=False, and begin, '
                    f'end and all other numbers in steps (of {runner.max_iters} in the training)')
            length, unit, factor = (
                (runner.max_epochs, 'epochs', runner.max_iters / runner.max_epochs)
                if each.by_epoch else (runner.max_iters, 'steps', 1))
            option, needed = _needed_length(each)
            if needed > min(length * (1 + _ROUNDED), each.end):
                what = 'the warm-up of ' if _is_warm_up(each) else ''
                limit, cure = ((f'its end={each.end}', 'raise the end') if each.end < length else
                               (f'the training of {length} {unit}', 'train for longer'))
                warn(f'{what}{where}, {option}={needed}) is longer than {limit}; lower its '
                     f'{option}, or {cure}')
            end = min(each.end, each.begin + needed if option in _WHOLE else each.end) * factor
            if option == 'total_steps' and needed < min(each.end, length) - each.begin - 1:
                raise ValueError(f'{where}): total_steps={needed} are over before the training of '
                                 f'{length} {unit}, which would stop there with an error; raise '
                                 f'them, or write end={each.begin + needed}, too')
            text = '' if _is_warm_up(each) else f'{where}, {option}={needed}, end={each.end})'
            last[each.param_name] = max(last.get(each.param_name, (0, '')), (end, text))
        for parameter, (end, text) in last.items():
            if text and end < (1 - _ROUNDED) * runner.max_iters:
                warn(f'{text} is shorter than the training: {parameter} does not go on as it says '
                     f'from step {end:.0f} to the last, {runner.max_iters}; raise these numbers')


def _needed_length(scheduler: _ParamScheduler) -> tuple[str, float]:
    """The argument of a scheduler that says how many epochs or steps it takes until it has done
    what it is for, and that number; 0 if any will do."""
    for option in ('milestones', 'step_size', *_WHOLE):
        if hasattr(scheduler, option):
            value = getattr(scheduler, option)
            return option, (max(value) if option == 'milestones' else
                            sum(value) if option == 'periods' else value)
    # These go on as they are, for as long as you like.
    endless = hasattr(scheduler, 'gamma') or getattr(scheduler, 'factor', 0) == 1
    return 'end', 0 if endless or scheduler.end >= 1e9 else scheduler.end


def _is_warm_up(scheduler: _ParamScheduler) -> bool:
    start = getattr(scheduler, 'start_factor', getattr(scheduler, 'factor', 1))
    return (start < getattr(scheduler, 'end_factor', 1)
            or 'Warmup' in type(scheduler).__name__)



def schedule_settings(cfg: Config) -> dict[str, str]:
    """What a config says of optimizer and schedule, and how many images a step of all processes
    has, to be saved in a checkpoint.

    Returns:
        the text of each value by its dotted key, such as ``optim_wrapper.optimizer.lr``.
    """
    config = cfg.to_dict()
    images = (value_at(config, 'train_dataloader.batch_size') or 1) * get_world_size()
    settings = flat_config({**{name: config.get(name) for name in _SECTIONS},
                            'images of a step': images})
    return {key: value.__name__ if isinstance(value, type) else repr(value)
            for key, value in settings.items()}


def changed_settings(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The settings that differ, as lines ``KEY: BEFORE -> NOW``."""
    return [f'{key}: {before.get(key, "none")} -> {now.get(key, "none")}'
            for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
