"""What a measure is: its definition, its unit, its numbers, and what they say."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

#: One line of a plot: dict(label, x, y).
Series = dict[str, Any]


@dataclass(frozen=True)
class Measure:
    """One measure of a model, with all that a page needs to show it.

    name, title: for programs and for people. definition: the formula in words and symbols. unit: of
    all its numbers. value: the one number to tell, or None. series: lines, each ``dict(label, x,
    y)`` with numbers or None, or None. map: ``dict(rows, columns, values)``, labels and a list a
    row, or None. xlabel, ylabel: the axes of ``series``. text: what the numbers are of, and why
    some are missing.
    """

    name: str
    title: str
    definition: str
    unit: str
    xlabel: str = ''
    ylabel: str = ''
    value: float | None = None
    series: list[Series] | None = None
    map: dict[str, Any] | None = None
    text: str = ''

    @property
    def measured(self) -> bool:
        """Whether there is any number."""
        return self.value is not None or bool(self.series) or self.map is not None

    def of(self, text: str, value: float | None = None, series: list[Series] | None = None,
           table: dict[str, Any] | None = None) -> Measure:
        """This measure with its numbers."""
        return replace(self, text=text, value=None if value is None else number(value),
                       series=series, map=table)

    def missing(self, reason: str) -> Measure:
        """This measure of a model that has none of it, and why."""
        return replace(self, text=f'Not measured: {reason}.')

    def json(self) -> dict[str, Any]:
        """As plain numbers, text and lists."""
        return asdict(self)


def number(value: float | None) -> float | None:
    """Six digits of a number; None where there is none (a 0 / 0, for example), which json can't
    hold."""
    if value is None or not math.isfinite(value):
        return None
    return float(f'{float(value):.6g}')


def line(label: str, x: Sequence[float], y: Sequence[float | None]) -> Series:
    """One line of a plot."""
    return dict(label=label, x=[number(each) for each in x], y=[number(each) for each in y])


def table(rows: Sequence[object], columns: Sequence[object],
          values: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """A map: labels, and a list of numbers a row."""
    return dict(rows=[str(each) for each in rows], columns=[str(each) for each in columns],
                values=[[number(each) for each in row] for row in values])
