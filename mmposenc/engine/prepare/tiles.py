"""Cuts large images into tiles."""
from __future__ import annotations

import math
from collections.abc import Iterator

Window = tuple[int, int, int, int]


def tile_windows(columns: tuple[int, int], rows: tuple[int, int], tile: tuple[int, int],
                 max_stride: int) -> Iterator[Window]:
    """The tiles of an image, row by row.

    Args:
        columns, rows: the part of the image that is cut, in pixels.
        tile: its height and width in pixels.
        max_stride: as in :func:`tile_starts`.

    Returns:
        Left, top, right and bottom of each, in pixels.
    """
    height, width = tile
    for top in tile_starts(*rows, height, max_stride):
        for left in tile_starts(*columns, width, max_stride):
            yield left, top, left + width, top + height


def tile_starts(start: int, stop: int, tile: int, max_stride: int) -> list[int]:
    """The first pixels of tiles of ``tile`` pixels that cover [start, stop) exactly.

    Neighbours are evenly spaced, at most ``max_stride`` pixels, so every tile is whole: where the
    length is no multiple of the tile, tiles overlap a little instead of the last one being small.
    """
    free = stop - start - tile
    steps = math.ceil(free / max_stride)
    return [start + round(free * i / steps) for i in range(steps)] + [stop - tile]
