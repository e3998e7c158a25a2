"""Reads the size of images from the steps of a pipeline."""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from mmposenc.config_types import ReadOnlyConfig

from .nodes import type_without_library

Size = tuple[int, int]
_FAR = 1_000_000
#: Steps of pipelines that set the size of images, by the order of height and width in their
#: argument, and that argument. Names have no scope. mmdet's crop has another order than mmseg's.
_WIDTH_FIRST = {'Resize': 'scale', 'CenterCrop': 'crop_size', 'FixScaleResize': 'scale',
                'Pad': 'size', 'TestRandomCrop': 'crop_size'}
_HEIGHT_FIRST = {'RandomCrop': 'crop_size', 'RandomResizedCrop': 'scale'}
#: Steps that draw one of several sizes for each image.
_DRAWN = ('RandomResize', 'RandomChoiceResize', 'RandomChoice', 'Mosaic', 'RandomApply')


def size_after(steps: Iterable[ReadOnlyConfig], scope: str | None, *, ratio_kept: bool = False
               ) -> Size | None:
    """The size (H, W) after the last step of a pipeline that resizes images, or None. With
    ``ratio_kept`` also if that step keeps the ratio of the sides: of an image that fills the scale,
    or of one of 3:4 where the scale's long side is more than twice its short one and so is no more
    than a limit."""
    size: Size | None = None
    for step in steps:
        kind = type_without_library(step)
        if kind in _DRAWN:
            size = None
        elif kind in ('ResizeEdge', 'ResizeShortestEdge'):
            size = sides_of_scale(step['scale']) if ratio_kept else None
        elif kind in _WIDTH_FIRST and step.get(_WIDTH_FIRST[kind]) is not None:
            width, height = sides_of_scale(step[_WIDTH_FIRST[kind]])
            size = height, width
            if kind == 'Resize' and step.get('keep_ratio'):
                size = _within(size) if ratio_kept else None
        elif kind in _HEIGHT_FIRST and step.get('crop_type', 'absolute') == 'absolute':
            first, second = sides_of_scale(step[_HEIGHT_FIRST[kind]])
            size = (second, first) if scope == 'mmdet' else (first, second)
        elif kind == 'FixShapeResize':
            size = int(step['height']), int(step['width'])
    return size


def sides_of_scale(scale: float | Sequence[float]) -> Size:
    """Both sides of a scale in pixels; inf and -1, which set no limit, become :data:`_FAR`."""
    first, second = scale if isinstance(scale, (list, tuple)) else (scale, scale)
    return (int(first) if 0 < first < _FAR else _FAR,
            int(second) if 0 < second < _FAR else _FAR)


def _within(size: Size) -> Size:
    short, long = sorted(size)
    return size if long <= 2 * short else (short, round(short * 4 / 3))
