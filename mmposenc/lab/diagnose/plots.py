"""Measures as figures."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..figures.writing import SUFFIXES, save_figure
from .measure import Measure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Lines that a legend still tells apart; more are told by the map.
_LEGEND = 10


def draw_measure(measure: Measure, source: str) -> Figure:
    """A measure's lines, and its map beside them.

    Args:
        measure: with numbers.
        source: the files that the model is from, 'untrained' among them where it is.

    Raises:
        ValueError: for a measure without numbers.
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
        x, y = (np.array([np.nan if value is None else value for value in each[key]])
                for key in ('x', 'y'))
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
    values = np.array([[np.nan if value is None else value for value in row]
                       for row in measure.map['values']], float)
    image = axes.imshow(values, aspect='auto', interpolation='nearest')
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
    bar.ax.tick_params(labelsize=6)
    for axis, labels, turned in ((axes.yaxis, measure.map['rows'], 0),
                                 (axes.xaxis, measure.map['columns'], 60)):
        step = -(-len(labels) // 40)
        axis.set_ticks(range(0, len(labels), step), labels=labels[::step], fontsize=6,
                       rotation=turned)


def write_figures(measures: Sequence[Measure], folder: str | Path, source: str, *,
                  suffix: str = '.png') -> list[Path]:
    """Draws all measures that have numbers, each as a file of its name.

    Args:
        measures: what :func:`~mmposenc.lab.diagnose.diagnose` gives.
        folder: where they go; made where it is missing.
        source: as of :func:`draw_measure`.
        suffix: '.png', '.pdf' or '.svg'.

    Raises:
        ValueError: for another suffix.
    """
    if suffix not in SUFFIXES:
        raise ValueError(f'suffix={suffix!r} must be one of {", ".join(SUFFIXES)}')
    return [save_figure(draw_measure(each, source), Path(folder) / f'{each.name}{suffix}', dpi=130)
            for each in measures if each.measured]
