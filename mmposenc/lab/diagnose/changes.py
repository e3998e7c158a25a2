"""Measures of equivariance under shifts, and of changes with image size and with padding."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .features import Examined, FeatureMap
from .measure import Measure, Series, line, table

_DEFINITION = (
    'e(d) = ||f(x shifted by d) - f(x) shifted by d|| / ||f(x)||, over the cells that are in both '
    'pictures, over all channels and images; f is the map of tokens after a block, and d pixels '
    'are down and to the right. For parts of a cell, f(x shifted) is interpolated linearly. Inner '
    'cells are at least a quarter of the side from the border in both.')

VIEW = Measure(
    'shift_view', 'Error when the view moves', _DEFINITION + ' The shifted picture is another crop '
    'of a larger one, so new pixels enter at the border and change the context.',
    'share of ||f(x)||', 'shift, pixels', 'relative error')
ROLLED = Measure(
    'shift_rolled', 'Error when the picture is rolled', _DEFINITION + ' Pixels that leave on one '
    'side enter on the other, so the content does not change: the error comes only from absolute '
    'position.', 'share of ||f(x)||', 'shift, pixels', 'relative error')


def relative_error(found: Tensor, expected: Tensor) -> float:
    """||found - expected|| / ||expected||."""
    return float((found - expected).norm() / expected.norm())


def moved_back(values: Tensor, shift: tuple[float, float]) -> Tensor:
    """The map (..., H, W) whose cell i is the value at i + ``shift``, interpolated linearly; values
    outside are those of the border."""
    for dim, step in zip((-2, -1), shift, strict=True):
        side = values.shape[dim]
        place = torch.arange(side, device=values.device) + step // 1
        lower, upper = (each.clamp(0, side - 1).long() for each in (place, place + 1))
        part = step % 1
        near = values.index_select(dim, lower)
        values = near if part == 0 else torch.lerp(near, values.index_select(dim, upper), part)
    return values


def seen_twice(hw_shape: tuple[int, int], shift: tuple[float, float], margin: int | Sequence[int]
               = 0) -> Tensor:
    """Mask (H, W) of cells that are at least ``margin`` cells from the border, before and after a
    shift by ``shift``."""
    margins = (margin, margin) if isinstance(margin, int) else tuple(margin)
    lines = []
    for side, step, edge in zip(hw_shape, shift, margins, strict=True):
        place = torch.arange(side)
        first, last = max(edge, 0), side - 1 - max(edge, 0)
        lines.append((place >= first) & (place <= last)
                     & (place + step >= first) & (place + step <= last))
    return lines[0][:, None] & lines[1]


def shift_error(still: Tensor, moved: Tensor, shift: tuple[float, float], cells: Tensor
                ) -> float | None:
    """The relative error between a map (..., H, W) and that of the shifted picture, shifted back,
    on a mask of cells (H, W); None if the mask is empty."""
    if not cells.any():
        return None
    return relative_error(moved_back(moved, shift)[..., cells.to(still.device)],
                          still[..., cells.to(still.device)])


def view(images: Tensor, most: int, shift: int) -> Tensor:
    """Crops of images (B, C, H, W) that were enlarged by ``most`` pixels; the content is ``shift``
    pixels further down and to the right."""
    height, width = images.shape[-2:]
    large = F.interpolate(images, (height + most, width + most), mode='bilinear',
                          align_corners=False)
    start = most - shift
    return large[..., start:start + height, start:start + width].contiguous()


def measure_shifts(examined: Examined, images: Mapping[str, Tensor]) -> list[Measure]:
    """:data:`VIEW` and :data:`ROLLED`.

    Args:
        examined: the model.
        images: (B, C, H, W) by name; the map is of the last.
    """
    first = next(iter(images.values()))
    last = examined.maps(first)[-1]
    cell, cells = last.stride, min(last.values.shape[-2:])
    if cells < 2:
        reason = f'the last map has {cells} cell on a side, so no cell is in both pictures'
        return [VIEW.missing(reason), ROLLED.missing(reason)]
    whole = [cell * count for count in range(1, 1 + max(1, min(3, cells // 3)))]
    parts = sorted({part for part in (1, cell // 4, cell // 2) if 0 < part < cell})
    most = max(whole)
    text = f'The last map is {last.name}, whose cells are {cell} pixels wide.'
    found = []
    for measure, shifts in ((VIEW, whole + parts), (ROLLED, whole)):
        series: list[Series] = []
        value, rows = None, {}
        for kind, batch in images.items():
            def moved(shift: int, batch: Tensor = batch, measure: Measure = measure) -> Tensor:
                if measure is ROLLED:
                    return batch.roll((shift, shift), (-2, -1))
                return view(batch, most, shift)

            still = examined.maps(moved(0))
            errors = {shift: [_errors(a, b, shift) for a, b in
                              zip(still, examined.maps(moved(shift)), strict=True)]
                      for shift in sorted(shifts)}
            series += _series(kind, {d: each[-1] for d, each in errors.items()}, whole, parts)
            value = errors[cell][-1][0]
            rows = {each.name: [errors[d][i][0] for d in errors] for i, each in enumerate(still)}
        found.append(measure.of(
            f'{text} Value: shift by one cell, all cells, on {kind}. Map: all cells, after each '
            f'block, by shift.', value, series,
            table(list(rows), [f'{d} px' for d in sorted(shifts)], list(rows.values()))))
    return found


def _errors(still: FeatureMap, moved: FeatureMap, shift: int
            ) -> tuple[float | None, float | None]:
    """The errors on all cells that are in both pictures, and on the inner cells."""
    height, width = still.values.shape[-2:]
    step = (shift / still.stride,) * 2
    return tuple(shift_error(  # type: ignore[return-value]
        still.values, moved.values, step, seen_twice((height, width), step, margin))
        for margin in (0, (max(1, height // 4), max(1, width // 4))))


def _series(kind: str, errors: dict[int, tuple[float | None, float | None]], whole: list[int],
            parts: list[int]) -> list[Series]:
    lines = [line(f'{kind}, whole cells', whole, [errors[d][0] for d in whole]),
             line(f'{kind}, whole cells, inner', whole, [errors[d][1] for d in whole])]
    if parts and parts[0] in errors:
        lines.append(line(f'{kind}, parts of a cell', parts, [errors[d][0] for d in parts]))
    return lines


#: Sides of the pictures relative to those of the first.
FACTORS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)

_WHAT = ('f is the last map; f_s is that of the same picture resized to s times its sides (rounded '
         'to whole cells). "mean of cells": f averaged over its cells; "class token": the first '
         'token; "map": f_s resized linearly to the grid of f. Over all images. ')
SIZE_DISTANCE = Measure(
    'size_distance', 'Change of the output with image size',
    _WHAT + 'D(s) = ||f_s - f|| / ||f||.', 'share of ||f||', 'size, relative to the first',
    'relative distance')
SIZE_CORRELATION = Measure(
    'size_correlation', 'Correlation of outputs between image sizes',
    _WHAT + 'r(s): Pearson correlation of the numbers of f_s and f.', 'correlation',
    'size, relative to the first', 'correlation')


def correlation(found: Tensor, expected: Tensor) -> float:
    """Pearson correlation of two tensors of the same shape; NaN if one of them is constant."""
    a, b = (each.double().flatten() - each.double().mean() for each in (found, expected))
    return float((a * b).sum() / (a.norm() * b.norm()))


def measure_sizes(examined: Examined, images: Mapping[str, Tensor]) -> list[Measure]:
    """:data:`SIZE_DISTANCE` and :data:`SIZE_CORRELATION`.

    Args:
        examined: the model.
        images: (B, C, H, W) by name.
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
    text = (f'Value: mean of cells at {FACTORS[-1]:g} times the size, on '
            f'{list(images)[-1]}.{refused}')
    return [SIZE_DISTANCE.of(text, ends[0], distances),
            SIZE_CORRELATION.of(text, ends[1], correlations)]


def _sizes(batch: Tensor, cell: int) -> list[tuple[int, ...]]:
    """(H, W), multiples of a cell, for each factor, without duplicates."""
    return list(dict.fromkeys(
        tuple(max(1, round(side * factor / cell)) * cell for side in batch.shape[-2:])
        for factor in FACTORS))


def compared(other: FeatureMap, one: FeatureMap) -> dict[str, tuple[Tensor, Tensor] | None]:
    """The pairs of tensors of equal shape by which two maps of the same picture are compared."""
    pairs: dict[str, tuple[Tensor, Tensor] | None] = {
        'mean of cells': (other.values.mean((-2, -1)), one.values.mean((-2, -1)))}
    if one.prefix is not None and other.prefix is not None:
        pairs['class token'] = other.prefix[:, 0], one.prefix[:, 0]
    back = other.values if other.values.shape == one.values.shape else F.interpolate(
        other.values, one.values.shape[-2:], mode='bilinear', antialias=True,
        align_corners=False)
    pairs['map'] = back, one.values
    return pairs


PADDING = Measure(
    'padding_error', 'Change of the output in a padded batch',
    'e(n) = ||f(x padded) - f(x)|| / ||f(x)|| over the cells of x, all channels and all images; f '
    'is the last map. x is padded with zeros by n pixels at the right and bottom, in a batch with '
    'a picture of the full size. With mask_padding=True and known image sizes it is 0.',
    'share of ||f(x)||', 'padding, pixels', 'relative error')


def measure_padding(examined: Examined, images: Mapping[str, Tensor]) -> list[Measure]:
    """:data:`PADDING`, with the model's setting of ``mask_padding``.

    Args:
        examined: the model.
        images: (B, C, H, W) by name.
    """
    series: list[Series] = []
    value, refused = None, ''
    for kind, batch in images.items():
        alone = examined.maps(batch)[-1]
        cells = max(alone.values.shape[-2:])
        steps = sorted({max(1, cells // part) for part in (cells, 4, 2, 1)})
        errors: list[float | None] = []
        for step in steps:
            try:
                errors.append(padded_error(examined, batch, alone.values, step * alone.stride))
            except ValueError as error:  # encodings may have a largest grid
                errors.append(None)
                refused = f' At {step * alone.stride} pixels the model says: {error}'
        series.append(line(kind, [0, *(step * alone.stride for step in steps)], [0.0, *errors]))
        value = errors[-1]
    masks = {str(module.mask_padding) for module in examined.model.modules()
             if hasattr(module, 'mask_padding')}
    setting = f'mask_padding={" and ".join(sorted(masks))}' if masks else 'no mask_padding'
    text = f'The model has {setting}. Value: the largest padding, on {kind}.{refused}'
    return [PADDING.of(text, value, series)]


def padded_error(examined: Examined, images: Tensor, alone: Tensor, padding: int) -> float:
    """The relative error of the last map on the images' valid cells.

    Args:
        examined: the model.
        images: (B, C, H, W), to be padded.
        alone: (B, C', h, w), their last map without padding.
        padding: number of pixels to add at the right and bottom.
    """
    height, width = images.shape[-2:]
    full = (height + padding, width + padding)
    other = F.interpolate(images[:1], full, mode='bilinear', align_corners=False)
    batch = torch.cat((F.pad(images, (0, padding, 0, padding)), other))
    found = examined.maps(batch, [(height, width)] * len(images) + [full])[-1].values
    rows, cols = alone.shape[-2:]
    return relative_error(found[:len(images), :, :rows, :cols], alone)
