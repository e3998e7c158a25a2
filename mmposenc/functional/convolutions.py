"""Reads an argument of 2-D convolutions, which may be a number or a pair."""
from __future__ import annotations

from collections.abc import Sequence


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """A number as a pair of equal numbers, for rows and columns; a pair as it is."""
    return (value, value) if isinstance(value, int) else (
        (value[0], value[0]) if len(value) == 1 else (value[0], value[1]))
