"""Many small maps side by side as one: a tile each."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .maps import Array

#: Cells between two tiles.
_GAP = 1


def tile_sheet(maps: Array) -> Array:
    """Maps (R, C, h, w) side by side as one map, with NaN between them."""
    rows, cols, height, width = maps.shape
    sheet = np.full((rows * (height + _GAP), cols * (width + _GAP)), np.nan)
    for row in range(rows):
        for col in range(cols):
            top, left = row * (height + _GAP), col * (width + _GAP)
            sheet[top:top + height, left:left + width] = maps[row, col]
    return sheet[:rows * (height + _GAP) - _GAP, :cols * (width + _GAP) - _GAP]


def tile_ticks(labels: Sequence[object], side: int) -> dict[float, str]:
    """Ticks in the middle of tiles of ``side`` cells, at most about ten of them."""
    step = -(-len(labels) // 10)
    return {place * (side + _GAP) + (side - 1) / 2: str(labels[place])
            for place in range(0, len(labels), step)}


def tile_axes(cells: list[list[tuple[int, int]]], tile: tuple[int, int]) -> dict[str, Any]:
    """Labels and ticks of a sheet with a tile for each reference cell."""
    references = [line[0][0] for line in cells], [cell[1] for cell in cells[0]]
    found: dict[str, Any] = {}
    for letter, axis, places, side in zip('yx', ('row', 'column'), references, tile, strict=True):
        found[f'{letter}label'] = f'{axis} of the reference cell; a tile holds {side} key {axis}s'
        found[f'{letter}ticks'] = tile_ticks(places, side)
    return found
