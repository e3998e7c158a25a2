"""Charts of the page: where points, ticks and words lie; templates/macros.html draws them.

They are SVG of our own, and not matplotlib's, because they live in a page: words are the page's
text in its font, colours follow the theme of whoever reads (also in print), each point says its
values, and a legend that is shared by all of them can fade the others. matplotlib chooses the
ticks.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from ..study.files import Record

if TYPE_CHECKING:
    from .tables import Table

WIDTH, HEIGHT = 360, 262
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 28, 48  # LEFT is a minimum: the words of the ticks may need more
LETTER = 7.6  # the width of a digit at most
#: The lines of a picture's frame, as the template needs them.
FRAME = dict(width=WIDTH, height=HEIGHT, right=WIDTH - RIGHT, top=TOP, bottom=HEIGHT - BOTTOM)
#: Points with the same x are drawn side by side, over this many units.
DODGE = 16
#: Colours for light and for dark pages, distinct also for people who see fewer colours
#: (tests/lab/compare/test_charts.py).
COLORS = (('#4d2bf2', '#775efd'), ('#bf7f04', '#cf9a21'), ('#156452', '#11a398'),
          ('#8e239e', '#b98beb'), ('#000832', '#c8ffc4'), ('#5b4d00', '#fbef16'),
          ('#0f8eff', '#7affff'), ('#390000', '#b84f3a'))
#: Markers as paths around the origin, about 10 units wide.
MARKERS = ('M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z', 'M-4 -4h8v8h-8z',
           'M0 -5.2L5 3.8H-5z', 'M0 -5.6L5 0L0 5.6L-5 0z', 'M0 5.2L5 -3.8H-5z',
           'M-1.5 -5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z',
           'M-5 -3l2 -2l3 3l3 -3l2 2l-3 3l3 3l-2 2l-3 -3l-3 3l-2 -2l3 -3z',
           'M-5.5 -2.5h11v5h-11z')
DASHES = ('', '7 3', '2 3', '9 3 2 3')


@dataclass(frozen=True)
class Axis:
    """The axis of a chart: its title, how numbers are written on it, and the range of possible
    values."""
    label: str
    text: Callable[[float], str] = lambda value: f'{value:g}'
    tick: Callable[[float], str] | None = None  # the text of a tick; otherwise that of a number
    ticks: Sequence[float] | None = None  # where ticks lie; otherwise they are chosen
    # the range of possible values: 0 to 100 for a share
    limits: tuple[float, float] = (-math.inf, math.inf)
    logarithmic: bool = False


@dataclass(frozen=True)
class Scale:
    """Converts numbers on an axis to units of the picture."""
    ends: tuple[float, float]
    start: float
    end: float
    logarithmic: bool

    def __call__(self, value: float) -> float:
        low, high, value = ((math.log(v) for v in (*self.ends, value)) if self.logarithmic
                            else (*self.ends, value))
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)


def axis_scale(axis: Axis, low: float, high: float, start: float, end: float, padded: float = 0.,
               ) -> Scale:
    """The scale of an axis for some values; a single value lies in its middle."""
    if axis.logarithmic:
        edge = (high / low) ** padded if high > low else 2.
        return Scale((low / edge, high * edge), start, end, True)
    edge = padded * (high - low) if high > low else abs(high) / 2 or .5
    return Scale((low - edge, high + edge) if padded or high == low else (low, high), start, end,
                 False)


def ticks_and_words(axis: Axis, low: float, high: float) -> list[tuple[float, str]]:
    """Ticks in a range and their words: the axis' own ticks, otherwise round numbers. They have
    more digits where two would read the same."""
    from matplotlib import ticker
    locator = (ticker.LogLocator(numticks=5) if axis.logarithmic
               else ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    chosen = axis.ticks if axis.ticks is not None else locator.tick_values(low, high)
    # The step of numbers such as .1 is not exact.
    slack = 1e-9 * (high - low)
    values = [float(value) for value in chosen if low - slack <= value <= high + slack]
    words = [(axis.tick or axis.text)(value) for value in values]
    if len(set(words)) < len(words):
        words = [f'{value:.6g}' for value in values]
    return list(zip(values, words, strict=True))


@dataclass(frozen=True)
class Style:
    """The colour and marker of one encoding in every chart; 64 encodings differ in one of them."""
    index: int

    @property
    def color(self) -> int:
        return self.index % len(COLORS)

    @property
    def marker(self) -> str:
        return MARKERS[(self.index + self.index // len(COLORS)) % len(MARKERS)]

    @property
    def dash(self) -> str:
        return DASHES[(self.index + self.index // len(COLORS)) % len(DASHES)]


@dataclass(frozen=True)
class Line:
    """The points of one encoding; ``low`` and ``high`` are the ends of their intervals."""
    label: str
    style: Style
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    markers: bool = True


class Tick(NamedTuple):
    """A tick: its position, its words, and the position of their middle."""
    at: float
    text: str
    middle: float


@dataclass
class Chart:
    """All that a template needs for a chart; x and y of marks are units of the picture."""
    id: str
    title: str
    text: str  # what a screen reader says
    x: Axis
    y: Axis
    left: float = LEFT
    xticks: list[Tick] = field(default_factory=list)
    yticks: list[Tick] = field(default_factory=list)
    lines: list[Record] = field(default_factory=list)
    table: Table | None = None  # the same numbers as a table
    note: str = ''


def line_chart(id: str, title: str, lines: Sequence[Line], x: Axis, y: Axis, *,
               table: Table | None = None, note: str = '', bands: bool = False, dodge: bool = False
               ) -> Chart | None:
    """A chart of lines, or of single points; None where there is no finite point.

    Args:
        id: of the page; unique.
        title: a line.
        lines: one an encoding; points that are not finite are left out.
        x, y: the scales.
        table: the same numbers.
        note: a line below it.
        bands: intervals are areas and not bars.
        dodge: lines have the same x, and their bars are moved a little apart.
    """
    lines = [line for line in (finite_points(line, x.logarithmic) for line in lines) if line.x]
    if not lines:
        return None
    bottom, top = y_range(lines, y)
    up = axis_scale(y, bottom, top, HEIGHT - BOTTOM, TOP)
    yticks = [Tick(up(value), words, up(value)) for value, words in ticks_and_words(y, *up.ends)]
    left = max([LEFT, *(8 + LETTER * len(tick.text) for tick in yticks)])
    across = axis_scale(x, min(min(line.x) for line in lines), max(max(line.x) for line in lines),
                        left, WIDTH - RIGHT, padded=.07 if dodge else .04)
    where = 'table below it' if table else 'tables of the results'
    text = f'{chart_in_words(title, lines, x, y)} All numbers are in the {where}.'
    chart = Chart(id, title, text, x, y, left, yticks=yticks, table=table, note=note,
                  xticks=placed_ticks(x, across))
    step = DODGE / max(1, len(lines) - 1) if dodge else 0.
    chart.lines = [_line_in_picture_units(line, across, up, x, y, bands,
                                          step * (n - (len(lines) - 1) / 2))
                   for n, line in enumerate(lines)]
    return chart


def placed_ticks(axis: Axis, across: Scale) -> list[Tick]:
    """The ticks of a horizontal axis. Words that would run into those of the tick before are left
    out, and no words reach beyond the picture."""
    ticks = []
    end = -math.inf
    for value, words in ticks_and_words(axis, *across.ends):
        half = LETTER * len(words) / 2
        middle = min(across(value), WIDTH - half)
        fits = middle - half >= end
        ticks.append(Tick(across(value), words if fits else '', middle))
        end = middle + half + LETTER / 2 if fits else end
    return ticks


def finite_points(line: Line, positive_x: bool = False) -> Line:
    """A line without points that have no number. Missing ends of intervals become None."""
    points = [point for point in zip_longest(line.x, line.y, line.low, line.high)
              if None not in point[:2] and all(map(math.isfinite, point[:2]))
              and (point[0] > 0 or not positive_x)]
    x, y, low, high = zip(*points, strict=True) if points else ((), (), (), ())
    return replace(line, x=x, y=y, low=low, high=high)


def y_range(lines: Sequence[Line], axis: Axis) -> tuple[float, float]:
    """The range of y: all points, and intervals as far as they would not make the range of the
    points tiny."""
    values = [value for line in lines for value in line.y]
    low, high = min(values), max(values)
    ends = [value for line in lines for value in (*line.low, *line.high)
            if value is not None and math.isfinite(value)]
    room = high - low or max(ends, default=high) - min(ends, default=low) or abs(high) or 1.
    low = max(min([low, *ends]), low - room)
    high = min(max([high, *ends]), high + room)
    edge = .06 * (high - low or room)
    return max(low - edge, axis.limits[0]), min(high + edge, axis.limits[1])


def chart_in_words(title: str, lines: Sequence[Line], x: Axis, y: Axis) -> str:
    """A chart in words: what it shows, and the range of each line; if there are many lines, of the
    first ones."""
    parts = []
    for line in lines[:12]:
        first, last = y.text(line.y[0]), y.text(line.y[-1])
        parts.append(f'{line.label}: {first} at {x.text(line.x[0])}'
                     + (f', {last} at {x.text(line.x[-1])}' if len(line.x) > 1 else ''))
    more = f'; and {len(lines) - 12} more' if len(lines) > 12 else ''
    return f'{title}. {y.label} over {x.label}. {"; ".join(parts)}{more}.'


def _line_in_picture_units(line: Line, across: Scale, up: Scale, x: Axis, y: Axis, bands: bool,
                           shift: float, ) -> Record:
    """Convert one line to units of the picture."""
    marks, upper, lower = [], [], []
    for at, value, low, high in zip(line.x, line.y, line.low, line.high, strict=True):
        left, bar, span = round(across(at) + shift, 1), None, ''
        if low is not None and high is not None:
            bar, span = (up(low), up(high)), f' ({y.text(low)} to {y.text(high)})'
            upper.append(f'{left},{bar[1]}')
            lower.append(f'{left},{bar[0]}')
        marks.append(dict(x=left, y=up(value), bar=None if bands else bar,
                          text=f'{line.label}: {y.text(value)}{span} at {x.text(at)}'))
    whole = bands and len(upper) == len(marks)
    path = ' '.join(f'{mark["x"]},{mark["y"]}' for mark in marks) if len(marks) > 1 else ''
    return dict(label=line.label, style=line.style, marks=marks, markers=line.markers, path=path,
                band=' '.join(upper + lower[::-1]) if whole else '')
