"""Applies settings of a config that differ from those of the training that it resumes: schedule,
rate, weight decay."""
from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ..console import in_one_list

#: The sections of a config whose values a checkpoint would put back. (A schedule without an end has
#: the length of the training.)
_SECTIONS = ('optim_wrapper', 'param_scheduler', 'train_cfg')


def schedule_settings(cfg: Mapping[str, object]) -> dict[str, str]:
    """What a config says of optimizer and schedule, to be saved in a checkpoint.

    Returns:
        the text of each value by its dotted key, such as ``optim_wrapper.optimizer.lr``.
    """
    return {key: value for section in _SECTIONS for key,
            value in _flat_settings(section, cfg.get(section))}


def _flat_settings(key: str, node: Any) -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        children: Any = node.items()
    elif isinstance(node, (list, tuple)) and any(isinstance(each, Mapping) for each in node):
        children = enumerate(node)
    else:
        yield key, node.__name__ if isinstance(node, type) else repr(node)
        return
    for name, child in children:
        yield from _flat_settings(f'{key}.{name}', child)


def changed_settings(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The settings that differ, as lines ``KEY: BEFORE -> NOW``."""
    return [f'{key}: {before.get(key, "none")} -> {now.get(key, "none")}'
            for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]


class SettingsOfConfig:
    """Remembers the optimizer's and schedulers' settings from the config, to put them over those of
    a checkpoint.

    Args:
        runner: a runner before it loads the checkpoint.
    """

    def __init__(self, runner: Any) -> None:
        self._groups = [{name: copy.deepcopy(value) for name, value in group.items()
                         if name != 'params'} for group in _param_groups(runner)]
        self._schedulers = [copy.deepcopy(scheduler.state_dict())
                            for scheduler in _schedulers(runner)]

    def put_over_checkpoint(self, runner: Any, epochs: int, epoch_length: int | None) -> None:
        """Give the optimizer the config's settings and the values of its schedule at this point.

        Momentum and other state of the optimizer stay those of the checkpoint.

        Args:
            runner: the runner after it has loaded the checkpoint, at the iteration of which the
                schedule is wanted.
            epochs: number of complete epochs.
            epoch_length: iterations of an epoch; None where the training has no epochs.
        """
        for group, own in zip(_param_groups(runner), self._groups, strict=True):
            group.update(copy.deepcopy(own))
        schedulers = [each for each in _schedulers(runner)
                      # Left out: a scheduler that follows past results.
                      if not getattr(each, 'need_val_args', False)]
        for scheduler, state in zip(_schedulers(runner), self._schedulers, strict=True):
            if scheduler in schedulers:
                scheduler.load_state_dict(copy.deepcopy(state))
        # torch warns of a step of a schedule before one of the optimizer.
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            for iteration in range(1, runner.iter + 1):
                ends = epoch_length and iteration % epoch_length == 0 \
                    and iteration // epoch_length <= epochs
                for scheduler in schedulers:
                    if not scheduler.by_epoch:
                        scheduler.step()
                for scheduler in schedulers:
                    if scheduler.by_epoch and ends:
                        scheduler.step()


def _param_groups(runner: Any) -> list[dict[str, Any]]:
    return in_one_list(runner.optim_wrapper.param_groups)


def _schedulers(runner: Any) -> list[Any]:
    return in_one_list(runner.param_schedulers or [])
