"""Fits the views of test-time augmentation to the pipeline with which a config is tested.

A config that changes the pipeline of its test keeps the ``tta_pipeline`` of its base, with the
base's sizes and ways to read pictures.
"""
from __future__ import annotations

import math
from copy import deepcopy

from mmengine.config import ConfigDict

from mmposenc.config_types import ConfigType, ReadOnlyConfig

from .nodes import type_without_library


def views_at_test_size(tta_pipeline: list[ConfigType], pipeline: list[ConfigType]
                       ) -> list[ConfigType]:
    """A config's views, as large as its test and read as the test reads its pictures.

    Views that have fixed sizes, none of them the test's, are scaled until the one in the middle has
    the test's.

    Args:
        tta_pipeline: of the config; it is not changed.
        pipeline: of its test.
    """
    adapted = deepcopy(list(tta_pipeline))
    test_steps = {type_without_library(step): step for step in pipeline}
    views = [steps for step in adapted if type_without_library(step) == 'TestTimeAug'
             for steps in step['transforms']]
    for steps in (adapted, *views):
        for number, step in enumerate(steps):
            name = type_without_library(step)
            if name.startswith('Load') and name in test_steps:
                steps[number] = deepcopy(test_steps[name])
    for steps in views:
        if steps and all(type_without_library(step) == 'Resize' for step in steps):
            steps[:] = _resized_views(steps, test_steps.get('Resize'))
    return adapted


def _resized_views(views: list[ConfigType], test: ReadOnlyConfig | None) -> list[ConfigType]:
    """The steps that resize, with the views' sizes scaled to that of the test's step."""
    scales = [step.get('scale') for step in ([*views, test] if test else views)]
    if not all(isinstance(scale, (list, tuple)) and 0 < min(scale) <= max(scale) < math.inf
               for scale in scales):
        return views  # Sizes are shares of the picture, or leave a side open.
    if test and _size(test, test) in [_size(view, test) for view in views]:
        return views
    width, height = sorted(scales[:len(views)], key=math.prod)[len(views) // 2]
    factors = [(scale[0] / width, scale[1] / height) for scale in scales[:len(views)]]
    if test is None:  # The test leaves pictures as they are.
        return [ConfigDict(type=views[0]['type'], keep_ratio=True, scale_factor=factor)
                for factor in factors]
    return [ConfigDict({**deepcopy(test), 'scale': (round(test['scale'][0] * first),
                                                    round(test['scale'][1] * second))})
            for first, second in factors]


def _size(step: ReadOnlyConfig, test: ReadOnlyConfig) -> tuple[int, ...]:
    """The size of a step; if the test keeps the ratio of the sides, their order does not matter."""
    return tuple(sorted(step['scale'])) if test.get('keep_ratio') else tuple(step['scale'])
