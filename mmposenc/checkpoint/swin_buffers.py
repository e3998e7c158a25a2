"""Compares what files of Swin hold besides weights with what the models here compute."""
from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

State = Mapping[str, Tensor]


def _possible_sides(number: int) -> Iterator[tuple[int, int]]:
    """All pairs of a height and a width with this number of cells."""
    return ((side, number // side) for side in range(1, number + 1) if number % side == 0)


def check_index(match: re.Match[str], index: Tensor, state: State) -> dict[str, Tensor]:
    """Raise ValueError if a file's index gives pairs of cells other rows of the table than here,
    where rows are ordered by query minus key, rows first."""
    for height, width in _possible_sides(len(index)):
        cells = torch.arange(len(index))
        row, col = cells // width, cells % width
        rows, cols = (axis[:, None] - axis for axis in (row, col))
        if torch.equal((rows + height - 1) * (2 * width - 1) + cols + width - 1, index.long()):
            return {}
    raise ValueError(f'{match[0]} does not number offsets in a window row by row, query minus key')


def check_mask(match: re.Match[str], mask: Tensor, state: State) -> dict[str, Tensor]:
    """Raise ValueError if a mask (windows, cells, cells) is not that of windows shifted by half of
    their side, on a map with any sides."""
    windows, cells, _ = mask.shape
    for down, across in _possible_sides(windows):
        for height, width in _possible_sides(cells):
            parts = [torch.arange(down * height), torch.arange(across * width)]
            rows, cols = (
                (at >= len(at) - side).long() + (at >= len(at) - side // 2)
                for at, side in zip(parts, (height, width), strict=True))
            labels = (3 * rows[:, None] + cols).view(down, height, across, width)
            labels = labels.transpose(1, 2).reshape(windows, cells)
            apart = labels[:, None] != labels[:, :, None]
            if torch.equal(-100.0 * apart.double(), mask.double()):
                return {}
    raise ValueError(f'{match[0]} is not the mask of windows that are shifted by half a side')


def window_of_coordinates(match: re.Match[str], table: Tensor, state: State) -> dict[str, Tensor]:
    """The (H, W) of the window whose offsets Swin V2's coordinates (1, 2 H' - 1, 2 W' - 1, 2) are
    counted in: the farthest one has 8.

    Raises:
        ValueError: these are other coordinates.
    """
    sides = []
    for axis in (0, 1):
        along = table[0, :, 0, 0] if axis == 0 else table[0, 0, :, 1]
        offsets = torch.arange(len(along)) - len(along) // 2
        if len(along) == 1:
            sides.append(1)
            continue
        step = 8.0 ** float(along[len(along) // 2 + 1].double()) - 1
        sides.append(round(8 / step) + 1 if step > 0 and math.isfinite(step) else 0)
        scaled = offsets * (8 / max(sides[-1] - 1, 1))
        expected = scaled.sign() * torch.log2(scaled.abs() + 1) / 3
        shape = (-1, 1) if axis == 0 else (1, -1)
        coordinates = table[0, ..., axis].double()
        if sides[-1] < 2 or not torch.allclose(
                coordinates, expected.double().view(shape).expand_as(coordinates), rtol=0,
                atol=2e-3):
            raise ValueError(f'{match[0]} holds other coordinates than logarithms of offsets')
    return {f'stages.{match[1]}.blocks.{match[2]}.attn.w_msa.rel_pos_encoding': torch.tensor(sides)}
