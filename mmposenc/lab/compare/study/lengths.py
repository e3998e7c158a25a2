"""Reads how long a config trains, and lets it train for longer or shorter."""
from __future__ import annotations

from typing import NamedTuple

from mmengine.config import Config

from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.engine.config.nodes import listed, type_without_library

#: Schedulers that are a warm-up if they begin at 0 and end before the training does.
_WARM_UPS = ('LinearLR', 'ConstantLR', 'LinearMomentum', 'ConstantMomentum', 'QuadraticWarmupLR',
             'LinearParamScheduler', 'ConstantParamScheduler')
#: Arguments of schedulers that are points in time, and those that are durations.
_POINTS, _DURATIONS = ('begin', 'end', 'milestones'), ('T_max', 'step_size', 'total_steps',
                                                       'periods')
#: Arguments of hooks that are points in time.
_HOOK_POINTS = ('switch_epoch', 'begin_epoch', 'begin_iter')
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
    validations. A warm-up keeps its length, up to a quarter of the training where both are counted
    in the same unit. There is one checkpoint, of the last tenth or less.

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
    share = length.number / whole.number
    loop = cfg.train_cfg
    loop['max_epochs' if whole.unit == 'epochs' else 'max_iters'] = length.number
    interval = min(loop.get('val_interval', 1), whole.number)
    loop['val_interval'] = _scaled_number(interval, share, 1)
    if loop.get('val_begin', 1) > 1:
        loop['val_begin'] = _scaled_number(loop['val_begin'], share, 1)
    if loop.get('dynamic_intervals'):
        loop['dynamic_intervals'] = [(_scaled_number(at, share, 0), _scaled_number(every, share, 1))
                                     for at, every in loop['dynamic_intervals']]
    _scale_schedules(cfg, whole, length)
    for hook in cfg.get('custom_hooks') or []:
        for name in _HOOK_POINTS:
            if isinstance(hook, dict) and isinstance(hook.get(name), int):
                hook[name] = _scaled_number(hook[name], share, 0)
    cfg.setdefault('default_hooks', {})
    saving = {'type': 'CheckpointHook', **(cfg.default_hooks.get('checkpoint') or {})}
    saving.update(interval=max(1, length.number // _CHECKPOINTS), max_keep_ckpts=1,
                  by_epoch=whole.unit == 'epochs', save_last=True)
    saving.pop('save_best', None)
    cfg.default_hooks['checkpoint'] = saving


def _scale_schedules(cfg: Config, whole: Length, length: Length) -> None:
    many = listed(cfg.get('param_scheduler') or [])
    for by_epoch in (True, False):
        here = [each for each in many if isinstance(each, dict)
                and each.get('by_epoch', True) == by_epoch]
        if by_epoch == (whole.unit == 'epochs'):
            total, limit = whole.number, length.number / 4
        # These schedulers count iterations in a training of epochs, whose number of iterations is
        # not known: the last one's end is taken for that of the training.
        else:
            total = max([each.get('end', 0) for each in here if not _is_warm_up(each, None)],
                        default=0)
            limit = float('inf')
        warm = max([each['end'] for each in here if _is_warm_up(each, total)], default=0)
        change = LengthChange(warm, total, int(min(warm, max(1, limit))),
                              round(total * length.number / whole.number))
        for each in here:
            if by_epoch == (whole.unit == 'epochs'):
                each.setdefault('end', total)  # mmengine does the same, with the new length.
            _scale_schedule(each, change)


class LengthChange(NamedTuple):
    """The lengths of the warm-up and of the whole training, before and after a change."""

    warm: int
    total: int
    new_warm: int
    new_total: int

    def moved(self, point: int) -> int:
        """Where a point in time moves to; a point that never comes stays."""
        if point <= self.warm:
            return round(point * self.new_warm / self.warm) if self.warm else 0
        if point > self.total:
            return point
        share = (point - self.warm) / (self.total - self.warm)
        return round(self.new_warm + share * (self.new_total - self.new_warm))


def _is_warm_up(each: ReadOnlyConfig, total: int | None) -> bool:
    end = each.get('end')
    return (type_without_library(each) in _WARM_UPS and each.get('begin', 0) == 0
            and isinstance(end, int)
            and (not total or end < total))


def _scale_schedule(each: ConfigType, change: LengthChange) -> None:
    begin = each.get('begin', 0)

    def scaled_length(part: int) -> int:
        return max(1, change.moved(begin + part) - change.moved(begin))
    for names, moved in ((_DURATIONS, scaled_length), (_POINTS, change.moved)):
        for name in names:
            if isinstance(each.get(name), int):
                each[name] = moved(each[name])
            elif isinstance(each.get(name), (list, tuple)):
                each[name] = [moved(part) for part in each[name]]
    if isinstance(each.get('end'), int) and each['end'] <= each.get('begin', 0):
        each['end'] = each.get('begin', 0) + 1  # mmengine needs at least one step.


def _scaled_number(number: int, share: float, least: int) -> int:
    return max(least, round(number * share))
