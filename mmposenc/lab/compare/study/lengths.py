"""Reads how long a config trains, and lets it train for longer or shorter."""
from __future__ import annotations

from typing import NamedTuple

from mmengine.config import Config

from mmposenc.config_types import ConfigType
from mmposenc.engine.config.nodes import listed, type_without_library

#: Schedulers that are a warm-up if they begin at 0.
_WARM_UPS = ('LinearLR', 'ConstantLR', 'LinearMomentum', 'ConstantMomentum', 'QuadraticWarmupLR',
             'LinearParamScheduler', 'ConstantParamScheduler')
#: Arguments of schedulers and hooks that are points in time or durations.
_TIMES = ('begin', 'end', 'milestones', 'T_max', 'step_size', 'total_steps', 'periods')
_HOOK_TIMES = ('switch_epoch', 'begin_epoch', 'begin_iter')
#: The smallest number of checkpoints of a training: a run that is killed repeats at most a tenth of
#: itself.
_CHECKPOINTS = 10


class Length(NamedTuple):
    """A number of 'epochs' or 'iterations'."""

    unit: str
    number: int

    def __str__(self) -> str:
        return f'{self.number} {self.unit if self.number != 1 else self.unit.removesuffix("s")}'


def training_length(cfg: Config) -> Length:
    """The length of a config's training.

    Raises:
        ValueError: its train_cfg does not say.
    """
    loop = cfg.get('train_cfg') or {}
    kind = str(loop.get('type', ''))
    by_epoch = loop.get('by_epoch', not kind.endswith('IterBasedTrainLoop'))
    unit, key = ('epochs', 'max_epochs') if by_epoch else ('iterations', 'max_iters')
    number = loop.get(key)
    if not isinstance(number, int) or number < 1:
        raise ValueError(f'train_cfg.{key}={number!r}: it must say for how many {unit} to train')
    return Length(unit, number)


def set_length(cfg: Config, length: Length) -> None:
    """Trains for another length, with the same schedule in it.

    What is a share of the training stays that share: ends of schedules, milestones, intervals of
    validations. A warm-up that is counted in iterations in a training of epochs stays as it is, and
    so does the beginning of what follows it. There is one checkpoint, of the last tenth or less.

    Args:
        cfg: changed in place.
        length: in the unit of the config.

    Raises:
        ValueError: the config counts in the other unit.
    """
    whole = training_length(cfg)
    if whole.unit != length.unit:
        raise ValueError(f'--{length.unit} {length.number}: the config trains for {whole}; '
                         f'give --{whole.unit}')
    if length.number < 1:
        raise ValueError(f'--{length.unit} {length.number} must be at least 1')
    share, by_epoch = length.number / whole.number, whole.unit == 'epochs'
    loop = cfg.train_cfg
    loop['max_epochs' if by_epoch else 'max_iters'] = length.number
    loop['val_interval'] = max(1, round(min(loop.get('val_interval', 1), whole.number) * share))
    if 'val_begin' in loop:
        loop['val_begin'] = max(1, round(loop['val_begin'] * share))
    if loop.get('dynamic_intervals'):
        loop['dynamic_intervals'] = [(round(at * share), max(1, round(every * share)))
                                     for at, every in loop['dynamic_intervals']]
    schedules = listed(cfg.get('param_scheduler'))
    warm_ups = [each for each in schedules if each.get('by_epoch', True) != by_epoch
                and type_without_library(each) in _WARM_UPS and each.get('begin', 0) == 0]
    warm_up_ends = [each.get('end') for each in warm_ups]
    for schedule in schedules:
        if schedule not in warm_ups:
            _scale_schedule(schedule, whole, by_epoch, share, warm_up_ends)
    for hook in cfg.get('custom_hooks') or []:
        for name in _HOOK_TIMES:
            if isinstance(hook, dict) and isinstance(hook.get(name), int):
                hook[name] = round(hook[name] * share)
    cfg.setdefault('default_hooks', {})
    saving = {'type': 'CheckpointHook', **(cfg.default_hooks.get('checkpoint') or {})}
    saving.update(interval=max(1, length.number // _CHECKPOINTS), max_keep_ckpts=1,
                  by_epoch=by_epoch, save_last=True)
    saving.pop('save_best', None)
    cfg.default_hooks['checkpoint'] = saving


def _scale_schedule(schedule: ConfigType, whole: Length, by_epoch: bool, share: float,
                    warm_up_ends: list[int | None]) -> None:
    begin, is_same_unit = schedule.get('begin', 0), schedule.get('by_epoch', True) == by_epoch
    if is_same_unit:
        # mmengine fills in the same end, but with the new length.
        schedule.setdefault('end', whole.number)
    for name in _TIMES:
        value = schedule.get(name)
        if isinstance(value, (list, tuple)):
            schedule[name] = [round(each * share) for each in value]
        elif isinstance(value, int):
            least = 0 if name in ('begin', 'end') else 1
            schedule[name] = max(least, round(value * share))
    if not is_same_unit and begin in warm_up_ends:  # What follows them begins where they end.
        schedule['begin'] = begin
    if isinstance(schedule.get('end'), int):  # mmengine needs at least one step.
        schedule['end'] = max(schedule['end'], schedule.get('begin', 0) + 1)
