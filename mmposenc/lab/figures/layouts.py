"""Where the query of a layer lies: on which grid, in which window, at which cell."""
from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from mmposenc.attention import PlainWindowAttention, SpatialReductionAttention, WindowAttention
from mmposenc.functional.grids import Grid, as_grid, key_grid
from mmposenc.functional.windows import window_counts

#: A map that was cut into windows, and the shift (rows, columns) of these.
Placed = tuple[Grid, tuple[int, int]]


def check_place(at: tuple[float, float]) -> None:
    """Refuse a place that is not inside an image.

    Raises:
        ValueError: if it is not two fractions of height and width.
    """
    if not all(0.0 <= each < 1.0 for each in at):
        raise ValueError(f'at={at} must be two fractions in [0, 1)')


class Layout(NamedTuple):
    """Where the query of a layer lies: grids, its cell, its row of the batch; in windows which one,
    and the map and the shift with which they were cut."""

    grid: Grid
    key: Grid
    cell: tuple[int, int]
    image: int = 0
    window: tuple[int, int] | None = None
    placed: Placed | None = None


def layout_of(module: nn.Module, given: dict[str, Any], at: tuple[float, float],
              placed: Placed | None) -> Layout:
    """The layout of a call for the query at a place of the image.

    Args:
        module, given, placed: as :class:`.watching.AttentionCall` has them.
        at: fractions of height and width.
    """
    if isinstance(module, WindowAttention):
        return _window_layout(as_grid(module.window_size), given, at, placed)
    grid = as_grid(given['hw_shape'])
    if isinstance(module, PlainWindowAttention):
        return _window_layout(as_grid(module.window_size), given, at, (grid, (0, 0)))
    key = grid
    if isinstance(module, SpatialReductionAttention):
        key = key_grid(grid, module.reduced_grid(grid))
    return Layout(grid, key, (int(at[0] * grid.height), int(at[1] * grid.width)))


def _window_layout(window: Grid, given: dict[str, Any], at: tuple[float, float],
                   placed: Placed | None) -> Layout:
    """The window that holds a place of the map; of windows that no map was cut into, the middle
    one of the image."""
    if placed is None:
        regions = given.get('regions')
        windows = len(given['x']) if regions is None else regions.shape[1]
        cell = int(at[0] * window.height), int(at[1] * window.width)
        return Layout(window, window, cell, windows // 2)
    grid, shift = placed
    down, across = window_counts(grid.hw, window.hw)
    row, col = ((int(share * side) - step) % length
                for share, side, step, length in zip(at, grid.hw, shift,
                                                     (down * window.height, across * window.width),
                                                     strict=True))
    place = row // window.height, col // window.width
    return Layout(window, window, (row % window.height, col % window.width),
                   place[0] * across + place[1], place, placed)
