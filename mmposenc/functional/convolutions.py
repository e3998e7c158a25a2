"""Reads the arguments of 2-D convolutions, which may be a number, a pair or a name."""
from __future__ import annotations

from collections.abc import Sequence


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """A number as a pair of equal numbers, for rows and columns; a pair as it is."""
    return (value, value) if isinstance(value, int) else (
        (value[0], value[0]) if len(value) == 1 else (value[0], value[1]))


def padding_cells(padding: str | int | Sequence[int], kernel: Sequence[int],
                  dilation: int | Sequence[int]) -> tuple[int, int]:
    """The number of cells of padding above and on the left, which are as many as below and on the
    right.

    Args:
        padding: 'valid', 'same', a number or a pair.
        kernel: rows and columns.
        dilation: a number or a pair.

    Raises:
        NotImplementedError: 'same' with a kernel that pads one side more.
    """
    if not isinstance(padding, str):
        return pair(padding)
    if padding == 'valid':
        return 0, 0
    total = [step * (side - 1) for side, step in zip(kernel, pair(dilation), strict=True)]
    if any(side % 2 for side in total):
        raise NotImplementedError("padding='same' with an even kernel pads one side more")
    return total[0] // 2, total[1] // 2
