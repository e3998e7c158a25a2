"""Says how large the objects of a data set are, and which sizes and anchors suit them."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Sides of pictures to choose from, and the side in pixels that objects should have in them.
_SIDES, _LEAST = (320, 480, 640, 960, 1280), 16
#: The recipe for boxes: the stride of its finest map, its octave_base_scale, and its largest anchor
#: over its smallest one.
_RECIPE, _STRIDE, _BASE, _SPAN = 'mmposenc::retinanet-pvt-peg-mine', 8, 2.5, 16 * 2 ** (2 / 3)


def object_sizes_text(boxes: Sequence[Sequence[float]], pictures: Sequence[Sequence[float]]) -> str:
    """A line on the sizes of objects; '' if there are none.

    Args:
        boxes: the width and height in pixels of each object.
        pictures: the width and height of each object's picture.
    """
    if not len(boxes):
        return ''
    sides, longest = np.sqrt(np.prod(boxes, 1)), np.max(pictures, 1)
    low, middle, high = np.quantile(sides, (0.05, 0.5, 0.95))
    # Training scales each picture to one side.
    small, large = np.quantile(sides / longest, (0.05, 0.95))
    side = next((side for side in _SIDES if small * side >= _LEAST), _SIDES[-1])
    # Pairs of boxes and anchors count up to a ratio of sqrt(2) of their sides.
    base = max(min(_BASE, small * side / _STRIDE), large * side / _STRIDE / _SPAN / 2 ** 0.5)
    tiles = ('; the smallest stay below 16 pixels, so cut the pictures into tiles'
             if small * side < _LEAST else '')
    return (f'objects (square root of the area; 9 of 10): {low:.0f} to {high:.0f} pixels, median '
            f'{middle:.0f}; suggested for {_RECIPE}: --size {side} --cfg-options '
            f'model.bbox_head.anchor_generator.octave_base_scale={base:.2g}{tiles}')
