"""Cutting large annotated images into square tiles."""
from __future__ import annotations

import math

import numpy as np


def tile_starts(start: int, stop: int, tile: int, stride: int) -> list[int]:
    """First pixels of tiles of ``tile`` pixels that cover [start, stop) exactly.

    Neighbours are at most ``stride`` apart and evenly spread, so every tile is whole: where the
    length is no multiple of the tile, tiles overlap a little instead of the last one being small.

    Raises:
        ValueError: If the range is shorter than a tile, or the stride leaves gaps.
    """
    if tile < 1:
        raise ValueError(f'tile must be at least 1 pixel, got {tile}')
    if not 1 <= stride <= tile:
        raise ValueError(f'stride must be between 1 and the tile of {tile} pixels, got {stride}')
    free = stop - start - tile
    if free < 0:
        raise ValueError(f'[{start}, {stop}) is shorter than a tile of {tile} pixels')
    steps = math.ceil(free / stride)
    return [start + round(free * i / steps) for i in range(steps)] + [stop - tile]


def clip_boxes(boxes: np.ndarray, window: tuple[int, int, int, int],
               min_inside: float = 0.5) -> np.ndarray:
    """Boxes as a window sees them: clipped, and dropped where too little is left.

    Args:
        boxes: (N, 4) corners x0, y0, x1, y1 in pixels, x1 and y1 exclusive.
        window: x0, y0, x1, y1 of the window in the same pixels.
        min_inside: a box stays if at least this share of its area lies inside.

    Returns:
        (M, 4) corners relative to the window's first pixel.
    """
    x0, y0, x1, y1 = window
    boxes = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    clipped = boxes.clip([x0, y0, x0, y0], [x1, y1, x1, y1])
    area = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    inside = np.prod(clipped[:, 2:] - clipped[:, :2], axis=1)
    keep = (inside > 0) & (inside >= min_inside * area)
    return clipped[keep] - [x0, y0, x0, y0]
