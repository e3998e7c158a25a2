"""How much outputs change with the size of the same picture."""
from __future__ import annotations

import math
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from .features import Examined, FeatureMap
from .measure import Measure, Series, line
from .shifts import relative_error

#: Sides of the pictures, in those of the first.
FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)

_WHAT = ('f is the last map; f_s that of the same picture resized to s times its sides (rounded to '
         'whole cells). "mean of cells": f averaged over its cells; "class token": its first; '
         '"map": f_s resized to the cells of f (linearly). All images together. ')
DISTANCE = Measure(
    'size_distance', 'Change of the output with image size',
    _WHAT + 'D(s) = ||f_s - f|| / ||f||.', 'share of ||f||', 'size, in sides of the first',
    'relative distance')
CORRELATION = Measure(
    'size_correlation', 'Correlation of outputs between image sizes',
    _WHAT + 'r(s): Pearson correlation of the numbers of f_s and f.', 'correlation',
    'size, in sides of the first', 'correlation')


def correlation(found: Tensor, expected: Tensor) -> float:
    """Pearson correlation of all numbers of two tensors; NaN where one of them does not vary."""
    a, b = (each.double().flatten() - each.double().mean() for each in (found, expected))
    return float((a * b).sum() / (a.norm() * b.norm()))


def measure_sizes(examined: Examined, images: Mapping[str, Tensor]) -> list[Measure]:
    """:data:`DISTANCE` and :data:`CORRELATION`.

    Args:
        examined: the model.
        images: (B, C, H, W) by what they are.
    """
    distances: list[Series] = []
    correlations: list[Series] = []
    refused, ends = '', (0.0, 0.0)
    for kind, batch in images.items():
        one = examined.maps(batch)[-1]
        lines: dict[str, list[tuple[float, float | None, float | None]]] = {}
        for size in _sizes(batch, one.stride):
            real = math.sqrt(size[0] * size[1] / (batch.shape[-2] * batch.shape[-1]))
            resized = batch if size == tuple(batch.shape[-2:]) else F.interpolate(
                batch, size, mode='bilinear', antialias=True, align_corners=False)
            try:
                pairs = compared(examined.maps(resized)[-1], one)
            except ValueError as error:  # encodings may have a largest grid
                refused = f' At {size[0]} x {size[1]} the model says: {error}'
                pairs = {name: None for name in compared(one, one)}
            for name, pair in pairs.items():
                lines.setdefault(name, []).append(
                    (real, None, None) if pair is None
                    else (real, relative_error(*pair), correlation(*pair)))
        for name, points in lines.items():
            x, far, alike = zip(*points, strict=True)
            distances.append(line(f'{kind}, {name}', x, far))
            correlations.append(line(f'{kind}, {name}', x, alike))
        ends = tuple(value if value is not None else math.nan  # type: ignore[assignment]
                     for value in lines['mean of cells'][-1][1:])
    text = (f'The value is that of the mean of cells at {FACTORS[-1]:g} times the size, of '
            f'{list(images)[-1]}.{refused}')
    return [DISTANCE.of(text, ends[0], distances), CORRELATION.of(text, ends[1], correlations)]


def _sizes(batch: Tensor, cell: int) -> list[tuple[int, ...]]:
    """(H, W) in whole cells for each factor; several that round to one are one."""
    return list(dict.fromkeys(
        tuple(max(1, round(side * factor / cell)) * cell for side in batch.shape[-2:])
        for factor in FACTORS))


def compared(other: FeatureMap, one: FeatureMap) -> dict[str, tuple[Tensor, Tensor] | None]:
    """What of two maps of the same picture is compared: pairs of equal shape."""
    pairs: dict[str, tuple[Tensor, Tensor] | None] = {
        'mean of cells': (other.values.mean((-2, -1)), one.values.mean((-2, -1)))}
    if one.prefix is not None and other.prefix is not None:
        pairs['class token'] = other.prefix[:, 0], one.prefix[:, 0]
    back = other.values if other.values.shape == one.values.shape else F.interpolate(
        other.values, one.values.shape[-2:], mode='bilinear', antialias=True,
        align_corners=False)
    pairs['map'] = back, one.values
    return pairs
