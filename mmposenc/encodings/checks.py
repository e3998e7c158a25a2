"""Checks and tables that several encodings share."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


def axis_tables(lengths: tuple[int, int], dims: int, num_heads: int, shared_heads: bool
                ) -> tuple[nn.Parameter, nn.Parameter]:
    """Uninitialized tables of row and column offsets, (n, dims) or (num_heads, n, dims)."""
    lead = () if shared_heads else (num_heads,)
    row, col = (nn.Parameter(torch.empty(*lead, length, dims)) for length in lengths)
    return row, col


def as_limits(value: int | tuple[int, int], name: str) -> tuple[int, int]:
    """Check a longest offset, one for both axes or (rows, columns).

    Raises:
        ValueError: if it is no whole number >= 0, or two of them.
    """
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or any(not isinstance(x, int) or x < 0 for x in pair):
        raise ValueError(f'{name}={value!r} must be a whole number >= 0, or two: (rows, columns)')
    return pair[0], pair[1]


def check_at_least(least: float, **numbers: float | None) -> None:
    """Raise ValueError for a number below ``least``, by its argument's name; None is none."""
    for name, value in numbers.items():
        if value is not None and value < least:
            raise ValueError(f'{name}={value} must be >= {least}')


def check_positive(**numbers: float | None) -> None:
    """Raise ValueError for a number that is not above 0, by its argument's name; None is none."""
    for name, value in numbers.items():
        if value is not None and not value > 0:
            raise ValueError(f'{name}={value} must be > 0')


def check_choices(**choices: tuple[object, Sequence[object]]) -> None:
    """Raise ValueError for a value that is none of those known; both by the argument's name."""
    for name, (value, known) in choices.items():
        if value not in known:
            texts = [repr(each) for each in known]
            wanted = ' or '.join(texts) if len(texts) < 3 else f'one of {", ".join(texts)}'
            raise ValueError(f'{name}={value!r} must be {wanted}')


def check_apply_to(apply_to: str) -> str:
    """Return where a token encoding applies.

    Raises:
        ValueError: if it is neither 'qkv' nor 'qk'.
    """
    check_choices(apply_to=(apply_to, ('qkv', 'qk')))
    return apply_to
