"""How far a model is from moving its output with its input."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .features import Examined, FeatureMap
from .measure import Measure, Series, line, table

_DEFINITION = (
    'e(d) = ||f(x moved by d) - f(x) moved by d|| / ||f(x)||, over the cells that are in both '
    'pictures, all channels and images together; f is the map of tokens behind a block, d pixels '
    'down and as many to the right. By parts of a cell, f(x moved) is read between its cells, '
    'linearly. Inner cells are a quarter of the side or more from the border in both.')

VIEW = Measure(
    'shift_view', 'Error when the view moves', _DEFINITION + ' The moved picture is another crop '
    'of a larger one: other pixels come in, and attention that reaches them sees others.',
    'share of ||f(x)||', 'shift, pixels', 'relative error')
ROLLED = Measure(
    'shift_rolled', 'Error when the picture is rolled', _DEFINITION + ' What leaves on one side '
    'comes in on the other, so that the content stays the same: what is left is what the model '
    'knows of places.', 'share of ||f(x)||', 'shift, pixels', 'relative error')


def relative_error(found: Tensor, expected: Tensor) -> float:
    """||found - expected|| / ||expected||."""
    return float((found - expected).norm() / expected.norm())


def moved_back(values: Tensor, shift: tuple[float, float]) -> Tensor:
    """The map (..., H, W) whose cell i is what lies at i + ``shift``, linearly between cells; what
    lies outside is repeated from the border."""
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
    """Cells (H, W) bool of a map that are ``margin`` or more cells from its border, and are still
    so when they have moved by ``shift``."""
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
    """The relative error between a map (..., H, W) and that of the moved picture, moved back, on
    some cells (H, W); None where there are none of them."""
    if not cells.any():
        return None
    return relative_error(moved_back(moved, shift)[..., cells.to(still.device)],
                          still[..., cells.to(still.device)])


def view(images: Tensor, most: int, shift: int) -> Tensor:
    """Crops of images (B, C, H, W) made ``most`` pixels larger, in which the content lies
    ``shift`` pixels further down and to the right than without a shift."""
    height, width = images.shape[-2:]
    large = F.interpolate(images, (height + most, width + most), mode='bilinear',
                          align_corners=False)
    start = most - shift
    return large[..., start:start + height, start:start + width].contiguous()


def measure_shifts(examined: Examined, images: Mapping[str, Tensor]) -> list[Measure]:
    """:data:`VIEW` and :data:`ROLLED`.

    Args:
        examined: the model.
        images: (B, C, H, W) by what they are; the map is of the last.
    """
    first = next(iter(images.values()))
    last = examined.maps(first)[-1]
    cell, cells = last.stride, min(last.values.shape[-2:])
    if cells < 2:
        reason = f'the last map has {cells} cell on a side, so none is seen twice'
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
            f'{text} The value is that of one cell, on all cells of {kind}; the map: all cells of '
            f'{kind} behind each block, by shift.', value, series,
            table(list(rows), [f'{d} px' for d in sorted(shifts)], list(rows.values()))))
    return found


def _errors(still: FeatureMap, moved: FeatureMap, shift: int
            ) -> tuple[float | None, float | None]:
    """On all cells that are in both, and on the inner ones."""
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
