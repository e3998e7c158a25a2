"""A measure: its definition, unit, numbers, explanation and figure."""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..figures.panels import SUFFIXES, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: One line of a plot: dict(label, x, y).
Series = dict[str, Any]


@dataclass(frozen=True)
class Measure:
    """One measure of a model, with everything that a page shows.

    Attributes:
        name: identifier for programs.
        title: heading for readers.
        definition: the formula in words and symbols.
        unit: unit of all numbers.
        value: the main number, or None.
        series: lines of a plot, each ``dict(label, x, y)`` with numbers or None; or None.
        map: ``dict(rows, columns, values)``, labels and a list for each row; or None.
        xlabel, ylabel: labels of the axes of ``series``.
        text: what the numbers are measured on, and why some are missing.
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
        """Whether the measure has numbers."""
        return self.value is not None or bool(self.series) or self.map is not None

    def of(self, text: str, value: float | None = None, series: list[Series] | None = None,
           table: dict[str, Any] | None = None) -> Measure:
        """This measure with its numbers."""
        return replace(self, text=text, value=None if value is None else number(value),
                       series=series, map=table)

    def missing(self, reason: str) -> Measure:
        """This measure for a model to which it does not apply, with the reason."""
        return replace(self, text=f'Not measured: {reason}.')

    def json(self) -> dict[str, Any]:
        """As plain numbers, text and lists."""
        return asdict(self)


def number(value: float | None) -> float | None:
    """A number rounded to six digits; None for NaN and infinity, which json cannot store."""
    if value is None or not math.isfinite(value):
        return None
    return float(f'{float(value):.6g}')


def line(label: str, x: Sequence[float], y: Sequence[float | None]) -> Series:
    """One line of a plot."""
    return dict(label=label, x=[number(each) for each in x], y=[number(each) for each in y])


def table(rows: Sequence[object], columns: Sequence[object],
          values: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """A map: labels, and a list of numbers for each row."""
    return dict(rows=[str(each) for each in rows], columns=[str(each) for each in columns],
                values=[[number(each) for each in row] for row in values])


#: Largest number of lines with a legend; with more lines only the map is labelled.
_LEGEND = 10


def draw_measure(measure: Measure, source: str) -> Figure:
    """A figure with a measure's lines and its map.

    Args:
        measure: a measure with numbers.
        source: config and checkpoint of the model, or 'untrained', for the title.

    Raises:
        ValueError: the measure has no numbers.
    """
    from matplotlib.figure import Figure  # draws without a display and without global state

    if not measure.series and measure.map is None:
        raise ValueError(f'measure {measure.name!r} has nothing to draw: {measure.text}')
    rows = len(measure.map['rows']) if measure.map else 0
    panels = bool(measure.series) + bool(measure.map)
    figure = Figure(figsize=(5.2 * panels, max(3.6, 0.9 + 0.2 * rows)), layout='constrained')
    axes = list(np.ravel(figure.subplots(1, panels)))
    if measure.series:
        _draw_lines(axes.pop(0), measure)
    if measure.map:
        _draw_map(axes.pop(0), measure)
    figure.suptitle(f'{measure.title} ({measure.unit})\n{source}', fontsize=9)
    return figure


def _draw_lines(axes: Axes, measure: Measure) -> None:
    from matplotlib.ticker import MaxNLocator

    lines = measure.series or []
    for number, each in enumerate(lines):
        x, y = (np.array(each[key], float) for key in ('x', 'y'))  # None is NaN
        axes.plot(x, y, marker='.', linewidth=1.2, label=each['label'],
                  linestyle=('-', '--', ':', '-.')[number // 10 % 4])
    axes.set_xlabel(measure.xlabel, fontsize=8)
    axes.set_ylabel(measure.ylabel, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if all(float(x).is_integer() for each in lines for x in each['x']):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(lines) <= _LEGEND:
        axes.legend(fontsize=6)


def _draw_map(axes: Axes, measure: Measure) -> None:
    assert measure.map is not None
    image = axes.imshow(np.array(measure.map['values'], float), aspect='auto',
                        interpolation='nearest')
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.ax.tick_params(labelsize=6)
    for axis, labels, turned in ((axes.yaxis, measure.map['rows'], 0),
                                 (axes.xaxis, measure.map['columns'], 60)):
        step = -(-len(labels) // 40)
        axis.set_ticks(range(0, len(labels), step), labels=labels[::step], fontsize=6,
                       rotation=turned)


def write_figures(measures: Sequence[Measure], folder: str | Path, source: str, *,
                  suffix: str = '.png') -> list[Path]:
    """Draw all measures that have numbers, each into a file of its name.

    Args:
        measures: results of :func:`~mmposenc.lab.diagnose.diagnose`.
        folder: folder of the files; it is created if it does not exist.
        source: as in :func:`draw_measure`.
        suffix: '.png', '.pdf' or '.svg'.

    Returns:
        The files.

    Raises:
        ValueError: another suffix.
    """
    if suffix not in SUFFIXES:
        raise ValueError(f'suffix={suffix!r} must be one of {", ".join(SUFFIXES)}')
    return [save_figure(draw_measure(each, source), Path(folder) / f'{each.name}{suffix}', dpi=130)
            for each in measures if each.measured]
