"""Puts what hooks count into checkpoints, and gives it back to them when a training is resumed."""
from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from mmengine.hooks import EarlyStoppingHook as _EarlyStoppingHook
from mmengine.hooks import Hook
from mmengine.runner import Runner


class EarlyStoppingHook(_EarlyStoppingHook):
    """mmengine's hook and arguments, whose count a checkpoint holds; under this project's runner
    every EarlyStoppingHook is this one."""

    priority = 'LOW'  # It counts before CheckpointHook saves.

    stopped = False

    def state_dict(self) -> dict[str, float]:
        return {'wait_count': self.wait_count, 'best_score': float(self.best_score),
                'stopped': self.stopped}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.wait_count, self.best_score = state['wait_count'], state['best_score']
        self.stopped = bool(state['stopped'])

    def before_run(self, runner: Runner) -> None:
        if runner.train_loop is not None:  # mmengine's refuses to test.
            super().before_run(runner)

    def before_train(self, runner: Runner) -> None:
        runner.train_loop.stop_training = self.stopped
        self._say_if_stopped(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        super().after_val_epoch(runner, metrics)
        self.stopped = runner.train_loop.stop_training
        self._say_if_stopped(runner)

    def _say_if_stopped(self, runner: Runner) -> None:
        if self.stopped:
            runner.logger.warning(
                f'EarlyStoppingHook ends the training after step {runner.iter} of '
                f'{runner.max_iters}: {self.monitor}, at best {self.best_score:.4g}, has not '
                f'improved in {self.wait_count} validations, or has reached its threshold')


def _named(hooks: Sequence[Hook]) -> dict[str, Hook]:
    """Users' hooks, and those that have a state, by their classes; the second of one is CLASS.1."""
    names: dict[str, Hook] = {}
    for hook in hooks:
        name, module = type(hook).__name__, type(hook).__module__
        if hasattr(hook, 'state_dict') or not module.startswith(('mmengine.', 'mmposenc.')):
            number = sum(each.partition('.')[0] == name for each in names)
            names[f'{name}.{number}' if number else name] = hook
    return names


def _numbers(hook: Hook) -> dict[str, float]:
    return {key: value for key, value in vars(hook).items() if type(value) in (int, float)}


def states_of_hooks(hooks: Sequence[Hook]) -> dict[str, Any]:
    """What a checkpoint holds of hooks, by name: the state, or the numbers of one without."""
    states = {}
    for name, hook in _named(hooks).items():
        state = hook.state_dict() if hasattr(hook, 'state_dict') else _numbers(hook)
        with suppress(Exception):  # A state of users may hold anything; only plain values are kept.
            torch.save(state, file := io.BytesIO())
            states[name] = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    return states


def restore_hooks(runner: Runner, states: dict[str, Any]) -> None:
    """Give hooks the states of a checkpoint; a warning names those that count from the beginning.
    """
    lost = []
    for name, hook in _named(runner.hooks).items():
        if name in states and hasattr(hook, 'load_state_dict'):
            hook.load_state_dict(states[name])
        elif hasattr(hook, 'load_state_dict') or states.get(name, _numbers(hook)) != _numbers(hook):
            lost.append(name)
    if lost:
        runner.logger.warning(
            f'the checkpoint cannot restore what these hooks count, which begin anew: '
            f'{", ".join(sorted(lost))}. A hook is resumed that has state_dict() of plain values, '
            'and load_state_dict(state)')
