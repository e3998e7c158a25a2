"""What the console says about a run before its first step: where the weights come from, and which
parts of the schedule cannot be meant."""
from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from mmengine.hooks import LoggerHook
from mmengine.optim.scheduler import (
    ConstantParamScheduler,
    LinearParamScheduler,
    _ParamScheduler,
)
from mmengine.runner import Runner
from torch import nn

#: For parameters of schedules, the words that messages use.
_NAMES = {'lr': 'learning rate'}
#: A training has at least this number of lines, if it has as many steps.
_LINES = 5


def weights_line(runner: Runner) -> str:
    """Say in one line where the weights of a training come from.

    Args:
        runner: a runner that has loaded what it loads.
    """
    source = runner._load_from
    if source is not None:
        return f'continues {source}' if runner._resume else f'starts from the weights of {source}'
    files = dict(_module_names_and_files(getattr(runner.model, 'module', runner.model)))
    if not files:
        return 'weights: random'
    parts = ', '.join(f'{name or "model"}: weights of {file}' for name, file in files.items())
    return parts if '' in files else f'{parts}; all others are random'


def _module_names_and_files(model: nn.Module) -> Iterator[tuple[str, str]]:
    """The names of modules whose ``init_cfg`` loads a file, with the files."""
    for name, module in model.named_modules():
        cfgs = getattr(module, 'init_cfg', None) or []
        for cfg in [cfgs] if isinstance(cfgs, dict) else cfgs:
            if isinstance(cfg, dict) and cfg.get('type') in ('Pretrained', 'PretrainedInit'):
                yield name, str(cfg.get('checkpoint'))


def in_one_list(lists: list[Any] | dict[str, list[Any]]) -> list[Any]:
    """All schedulers or groups of parameters in one list; for several optimizers mmengine has a
    list under each name."""
    return list(chain.from_iterable(lists.values())) if isinstance(lists, dict) else lists


def unfinished_warm_up_lines(runner: Runner) -> list[str]:
    """A line for each warm-up whose end the training does not reach."""
    lines = []
    for index, scheduler in enumerate(in_one_list(runner.param_schedulers or [])):
        length, unit = ((runner.max_epochs, 'epochs') if scheduler.by_epoch
                        else (runner.max_iters, 'steps'))
        if not _rises(scheduler) or scheduler.end <= length:
            continue
        name = scheduler.param_name
        lines.append(f'the warm-up of param_scheduler.{index} ({type(scheduler).__name__}, '
                     f'end={scheduler.end}) is longer than the training of {length} {unit}, '
                     'which never reaches the '
                     f'full {_NAMES.get(name, name)}; lower its end, or train for longer')
    return list(dict.fromkeys(lines))


def _rises(scheduler: _ParamScheduler) -> bool:
    if isinstance(scheduler, LinearParamScheduler):
        return bool(scheduler.start_factor < scheduler.end_factor)
    if isinstance(scheduler, ConstantParamScheduler):
        return bool(scheduler.factor < 1)
    return 'Warmup' in type(scheduler).__name__  # Such as the quadratic warm-up of mmdet.


def lower_log_interval(runner: Runner) -> list[str]:
    """Lower the interval of lines for a training that has fewer steps than it.

    Returns:
        a line that says so, if it was changed.
    """
    lines = []
    for hook in runner.hooks:
        if isinstance(hook, LoggerHook) and runner.max_iters < hook.interval:
            before, hook.interval = hook.interval, max(1, runner.max_iters // _LINES)
            steps = 'step' if hook.interval == 1 else f'{hook.interval} steps'
            lines.append(f'a line every {steps}, because the training has fewer than the '
                         f'{before} of default_hooks.logger.interval')
    return lines
