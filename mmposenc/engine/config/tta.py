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
        if 'Resize' in test_steps and all(type_without_library(step) == 'Resize' for step in steps):
            steps[:] = _resized_views(steps, test_steps['Resize'])
    return adapted


def _resized_views(views: list[ConfigType], test: ReadOnlyConfig) -> list[ConfigType]:
    """The steps that resize, with the views' sizes scaled to that of the test's step."""
    scales = [step.get('scale') for step in (test, *views)]
    if not all(isinstance(scale, (list, tuple)) and 0 < min(scale) <= max(scale) < math.inf
               for scale in scales):
        return views  # Sizes are shares of the picture, or leave a side open.
    size, *sizes = [tuple(sorted(scale)) if test.get('keep_ratio') else tuple(scale)
                    for scale in scales]
    if size in sizes:
        return views
    width, height = sorted(scales[1:], key=math.prod)[len(views) // 2]
    return [ConfigDict({**deepcopy(test), 'scale': (
        round(test['scale'][0] * scale[0] / width), round(test['scale'][1] * scale[1] / height))})
        for scale in scales[1:]]
