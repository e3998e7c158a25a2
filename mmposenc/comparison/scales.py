"""Scales of charts: where numbers lie along an axis, and the ticks and words on it."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Axis:
    """A scale: its words, the text of a number and of a tick on it, and where numbers lie."""
    label: str
    text: Callable[[float], str] = lambda value: f'{value:g}'
    tick: Callable[[float], str] | None = None   # else the text
    ticks: Sequence[float] | None = None   # else chosen
    limits: tuple[float, float] = (-math.inf, math.inf)  # of what can be: 0 to 100 of a share
    logarithmic: bool = False


@dataclass(frozen=True)
class Scale:
    """Numbers to units of the picture."""
    ends: tuple[float, float]
    start: float
    end: float
    logarithmic: bool

    def __call__(self, value: float) -> float:
        low, high, value = ((math.log(v) for v in (*self.ends, value)) if self.logarithmic
                            else (*self.ends, value))
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


def scale(axis: Axis, low: float, high: float, start: float, end: float, padded: float = 0.,
          ) -> Scale:
    """The scale of an axis; a single value lies in its middle."""
    if axis.logarithmic:
        edge = (high / low) ** padded if high > low else 2.
        return Scale((low / edge, high * edge), start, end, True)
    edge = padded * (high - low) if high > low else abs(high) / 2 or .5
    return Scale((low - edge, high + edge) if padded or high == low else (low, high), start, end,
                 False)


def ticks_in_words(axis: Axis, low: float, high: float) -> list[tuple[float, str]]:
    """Ticks and their words, with more digits where two would read the same."""
    values = ticks(axis, low, high, count=5)
    words = [(axis.tick or axis.text)(value) for value in values]
    if len(set(words)) < len(words):
        words = [f'{value:.6g}' for value in values]
    return list(zip(values, words, strict=True))


def ticks(axis: Axis, low: float, high: float, count: int) -> list[float]:
    """Round numbers within a range; the axis' own where it has some."""
    from matplotlib import ticker
    locator: Any = (ticker.LogLocator(numticks=count) if axis.logarithmic
                    else ticker.MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]))
    chosen = axis.ticks if axis.ticks is not None else locator.tick_values(low, high)
    # The step of numbers like .1 is not exact.
    slack = 1e-9 * (high - low)
    return [float(value) for value in chosen if low - slack <= value <= high + slack]
