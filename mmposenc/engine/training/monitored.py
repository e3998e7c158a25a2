"""Checks that a training's validation gives the results that its hooks and schedules wait for."""
from __future__ import annotations

from mmengine.evaluator import BaseMetric, DumpResults, Evaluator
from mmengine.hooks import CheckpointHook, EarlyStoppingHook
from mmengine.runner import Runner, ValLoop

from mmposenc.terminal.messages import suggestion_text

from ..config.nodes import listed

_COCO = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')
_SEGMENTATION = {'mIoU': ('mIoU', 'mAcc'), 'mDice': ('mDice', 'mAcc'),
                 'mFscore': ('mFscore', 'mPrecision', 'mRecall')}


def names_of_results(metric: BaseMetric) -> set[str] | None:
    """The names of the results of a metric, by its class; None for classes that are
    not among these."""
    kind, parts = type(metric).__name__, getattr(metric, 'metrics', [])
    if kind == 'CocoMetric' and {*parts} <= {'bbox', 'segm'} and not metric.classwise:
        names = [f'{part}_{item}' for part in parts for item in metric.metric_items or _COCO]
    elif kind == 'IoUMetric':
        names = ['aAcc', *(name for part in parts for name in _SEGMENTATION.get(part, ()))]
    elif kind == 'Accuracy' and len(metric.thrs) == 1:
        names = [f'top{number}' for number in metric.topk]
    else:
        return set() if isinstance(metric, DumpResults) else None
    return {f'{metric.prefix}/{name}' if metric.prefix else name for name in names}


def check_monitored(runner: Runner) -> None:
    """Check that a validation gives all results that hooks and schedules wait for.

    Raises:
        ValueError: names what waits, and the results that there are.
    """
    loop = runner.val_loop
    # A loop or an evaluator of another class may give results other names.
    results = [names_of_results(each) for each in loop.evaluator.metrics] if (
        type(loop) is ValLoop and type(loop.evaluator) is Evaluator) else [None]
    if None in results:
        return
    given: set[str] = set().union(*results)
    schedules = runner.param_schedulers
    schedules = sum(schedules.values(), []) if isinstance(schedules, dict) else listed(schedules)
    # Hooks of users may mean something else by these names.
    hooks = [each for each in runner.hooks if isinstance(each, (CheckpointHook, EarlyStoppingHook))]
    for each in [*hooks, *schedules]:
        for name in listed(getattr(each, 'save_best', getattr(each, 'monitor', None))):
            if name not in given and name != 'auto':
                raise ValueError(
                    f'save_best or monitor={name!r} of {type(each).__name__} is no result of the '
                    f'validation, which gives {", ".join(sorted(given))}'
                    f'{suggestion_text(name, given)}')
