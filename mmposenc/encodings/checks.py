"""Argument checks that several encodings share."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn


def check_at_least(least: float, **numbers: float | None) -> None:
    """Raise ValueError for an argument below ``least``; None is not checked."""
    for name, value in numbers.items():
        if value is not None and value < least:
            raise ValueError(f'{name}={value} must be >= {least}')


def check_positive(**numbers: float | None) -> None:
    """Raise ValueError for an argument that is not above 0; None is not checked."""
    for name, value in numbers.items():
        if value is not None and not value > 0:
            raise ValueError(f'{name}={value} must be > 0')


def check_choices(**choices: tuple[object, Sequence[object]]) -> None:
    """Raise ValueError for an argument that is not among its choices: name=(value, choices)."""
    for name, (value, known) in choices.items():
        if value not in known:
            texts = [repr(each) for each in known]
            wanted = ' or '.join(texts) if len(texts) < 3 else f'one of {", ".join(texts)}'
            raise ValueError(f'{name}={value!r} must be {wanted}')


def refuse(reason: str, **options: object) -> NoReturn:
    """Raise ValueError for options that do not fit together."""
    together = ' and '.join(f'{name}={value!r}' for name, value in options.items())
    raise ValueError(f'{together}: {reason}')
