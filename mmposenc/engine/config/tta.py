"""Builds the views of test-time augmentation around the pipeline with which a config is tested.

A config that changes the pipeline of its test keeps the ``tta_pipeline`` of its base, with the
base's sizes and ways to read pictures.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy

from mmengine.config import ConfigDict

from mmposenc.config_types import ConfigType, ReadOnlyConfig

from .nodes import type_without_library

Scale = tuple[float, float]


def with_flip_views(pipeline: list[ConfigType]) -> list[ConfigType]:
    """The test pipeline whose last steps run twice: without and with a flip.

    Raises:
        ValueError: it does not end in a step that packs.
    """
    *start, pack = deepcopy(list(pipeline))
    if not type_without_library(pack).startswith('Pack'):
        raise ValueError(f"--tta: the test pipeline ends in {pack.get('type')!r}, not in a Pack* "
                         'transform; give the config a tta_pipeline')
    if 'meta_keys' in pack:
        pack['meta_keys'] = tuple(dict.fromkeys([*pack['meta_keys'], 'flip', 'flip_direction']))
    # Ground truth is read after the flip, so that both views have the same.
    truth = [step for step in start if str(step.get('type')).endswith('LoadAnnotations')]
    start = [step for step in start if step not in truth]
    views = [[{'type': 'RandomFlip', 'prob': 0.0}, {'type': 'RandomFlip', 'prob': 1.0}]]
    return [*start, {'type': 'TestTimeAug',
                     'transforms': [*views, *([step] for step in truth), [pack]]}]


def views_at_test_size(tta_pipeline: list[ConfigType], pipeline: list[ConfigType]
                       ) -> list[ConfigType]:
    """A config's views, as large as its test and read as the test reads its pictures.

    Views that have fixed sizes, none of them the test's, are scaled until the one in the middle has
    the test's; those that are shares of the picture become shares of the test's size.

    Args:
        tta_pipeline: of the config; it is not changed.
        pipeline: of its test.
    """
    adapted = deepcopy(list(tta_pipeline))
    test_steps = {type_without_library(step): step for step in pipeline}
    for steps in _step_lists(adapted):
        for number, step in enumerate(steps):
            name = type_without_library(step)
            if name.startswith('Load') and name in test_steps:
                steps[number] = deepcopy(test_steps[name])
        names = {type_without_library(step) for step in steps}
        if names == {'Resize'} and steps is not adapted:
            steps[:] = _resized_views(steps, test_steps.get('Resize'))
    return adapted


def _step_lists(steps: list[ConfigType]) -> Iterator[list[ConfigType]]:
    """The steps of a pipeline, and those of each view in it."""
    yield steps
    for step in steps:
        if type_without_library(step) == 'TestTimeAug':
            for each in step['transforms']:
                yield from _step_lists(each)


def _resized_views(views: list[ConfigType], test: ReadOnlyConfig | None) -> list[ConfigType]:
    """The steps that resize, with the views' sizes scaled to that of the test's step."""
    fixed = [scale for step in views if (scale := _scale_pair(step.get('scale')))]
    factors = [factor for step in views if (factor := _scale_pair(step.get('scale_factor')))]
    if len(fixed) == len(views):
        test_scale = test and _scale_pair(test.get('scale'))
        if test_scale and any(_same_scale(test_scale, each, test) for each in fixed):
            return views
        middle = sorted(fixed, key=math.prod)[len(fixed) // 2]
        factors = [(a / middle[0], b / middle[1]) for a, b in fixed]
    elif len(factors) < len(views) or test is None:
        return views
    if test is None:  # The test leaves pictures as they are.
        return [ConfigDict(type=views[0]['type'], keep_ratio=True, scale_factor=factor)
                for factor in factors]
    name = 'scale' if test.get('scale') is not None else 'scale_factor'
    base = _scale_pair(test.get(name))
    if base is None:
        return views
    scaled = [(base[0] * first, base[1] * second) for first, second in factors]
    if name == 'scale':
        scaled = [(round(first), round(second)) for first, second in scaled]
    return [ConfigDict({**deepcopy(test), name: scale}) for scale in scaled]


def _scale_pair(value: object) -> Scale | None:
    """A size or a factor as a pair for both axes; None if there is none, or if it leaves a side
    open."""
    if isinstance(value, (int, float)):
        value = (value, value)
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(
            isinstance(side, (int, float)) and 0 < side < math.inf for side in value):
        return None
    return float(value[0]), float(value[1])


def _same_scale(one: Scale, other: Scale, resize: ReadOnlyConfig) -> bool:
    """Whether two scales are equal; if the ratio of the sides is kept, their order does not matter.
    """
    return sorted(one) == sorted(other) if resize.get('keep_ratio') else one == other
