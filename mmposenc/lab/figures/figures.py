"""Maps as figures. Matplotlib is imported when one is drawn, and no window is ever opened."""
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .categories import PALETTE
from .maps import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Points of what is written, from the title of a figure to ticks: legible in a column of a paper.
TITLE, HEADING, LABEL, TICK = 8, 7, 6.5, 6
#: Points of the smallest number that is written into a cell.
LEAST_NUMBER = 3.5
#: Inches below which a panel is not made narrower; a figure then has fewer columns.
NARROWEST = 1.5


class Drawable(Protocol):
    """What :func:`draw_panels` draws."""

    title: str

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, for the height of the panel."""

    @property
    def reach(self) -> float:
        """The largest magnitude that is shown."""

    def draw(self, axes: Axes, common: float | None) -> None:
        """Draw, with colours up to ``common`` where that is given."""


@dataclass
class Panel:
    """One map (rows, columns) of a figure.

    cell: (row, column) that is marked, in cells of the map, fractions allowed. diverging: colours
    in both directions from 0, for terms that may be negative. colors: of a map of whole numbers,
    the number in the palette of each cell; such a map has no colour bar, and its numbers are
    written into its cells while there is room. unit: what the colour bar shows. ylabel, xlabel:
    the axes. yticks, xticks: labels by their places, in cells of the map; None counts cells.
    prefix: so many rows and columns are prefix tokens, and are marked. limits: the colours' range;
    values beyond it are drawn at its ends.
    """

    title: str
    values: Array
    cell: tuple[float, float] | None = None
    diverging: bool = False
    colors: Array | None = None
    unit: str = ''
    ylabel: str = 'row, cells'
    xlabel: str = 'column, cells'
    yticks: dict[float, str] | None = None
    xticks: dict[float, str] | None = None
    prefix: int = 0
    limits: tuple[float, float] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """See :class:`Drawable`."""
        rows, columns = self.values.shape
        return rows, columns

    @property
    def reach(self) -> float:
        """See :class:`Drawable`; gaps of a sheet are NaN."""
        return float(np.nanmax(np.abs(self.values)))

    def draw(self, axes: Axes, common: float | None) -> None:
        """See :class:`Drawable`."""
        _draw(axes, self, common)


def draw_panels(panels: Sequence[Drawable], *, columns: int = 4, title: str | None = None,
                same_scale: bool = False, cell_inches: float = 2.2, width: float | None = None,
                narrowest: float = NARROWEST) -> Figure:
    """Draw maps side by side, each with its colour bar.

    Args:
        panels: the maps.
        columns: in a row of the figure.
        title: of the whole figure.
        same_scale: one range of colours for all, whose bar and axes are labelled once a row.
        cell_inches: width and height of a panel.
        width: of the figure in inches, in place of ``cell_inches``; there are fewer columns where
            panels would be narrower than ``narrowest``.

    Raises:
        ValueError: for no panels, or one whose values are not (rows, columns).
    """
    from matplotlib.figure import Figure  # draws without a display and without global state

    if not panels:
        raise ValueError('panels=[] must hold at least one map')
    for panel in panels:
        values = getattr(panel, 'values', None)
        if values is not None and values.ndim != 2:
            raise ValueError(f'panel {panel.title!r} has values of shape {values.shape}; '
                             f'(rows, columns) is required')
    if width is not None:
        columns = max(1, min(columns, int(width / narrowest)))
    rows = -(-len(panels) // columns)
    columns = -(-len(panels) // rows)  # no row much shorter than the others
    cell_inches = cell_inches if width is None else width / columns
    height = _panel_height(panels, cell_inches)
    text = None if title is None else fit(title, columns * cell_inches, TITLE)
    lines = 0 if text is None else 1 + text.count('\n')
    figure = Figure(figsize=(columns * cell_inches, rows * height + 0.15 * lines),
                    layout='constrained')
    largest = max(panel.reach for panel in panels)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        panel.draw(axes, largest if same_scale else None)
        if same_scale:
            _only_outer(axes, left=place % columns == 1 or columns == 1,
                        right=place % columns == 0 or place == len(panels),
                        bottom=place + columns > len(panels))
        _fit_texts(axes, cell_inches, height)
    if text is not None:
        figure.suptitle(text, fontsize=TITLE)
    return figure


def _panel_height(panels: Sequence[Drawable], inches: float) -> float:
    """Of panels ``inches`` wide, for the tallest of them."""
    tallest = max(panel.shape[0] / panel.shape[1] for panel in panels)
    # Labels and a colour bar take about 0.9 inches of the width, titles and labels 0.6 in height.
    return 0.6 + max(inches - 0.9, 0.55 * inches) * min(max(tallest, 0.2), 2.0)


def plot_figure(width: float | None, title: str) -> tuple[Figure, Axes]:
    """A figure of one plot of curves, 5 inches wide if not told, and its axes."""
    from matplotlib.figure import Figure

    inches = 5.0 if width is None else width
    figure = Figure(figsize=(inches, 0.64 * inches + 0.3), layout='constrained')
    axes = figure.add_subplot()
    axes.tick_params(labelsize=TICK)
    axes.grid(linewidth=0.3)
    figure.suptitle(fit(title, inches, TITLE), fontsize=TITLE)
    return figure, axes


def fit(text: str, inches: float, points: float) -> str:
    """A text with its lines broken so that they fit into a width."""
    # A letter is a little more than half as wide as it is high.
    letters = max(12, int(inches * 72 / (0.55 * points)))
    return '\n'.join(part for line in text.split('\n')
                     for part in textwrap.wrap(line, letters) or [''])


def _only_outer(axes: Axes, *, left: bool, right: bool, bottom: bool) -> None:
    """Leave out labels and the bar where the panels beside or below have the same."""
    if not left:
        axes.set_ylabel('')
    if not bottom:
        axes.set_xlabel('')
    if not right:
        for bar in list(axes.child_axes):
            bar.remove()


def _fit_texts(axes: Axes, inches: float, height: float) -> None:
    """Break titles and labels that would run into the next panel, beside or below."""
    axes.set_title(fit(axes.get_title(), 0.85 * inches, HEADING), fontsize=HEADING)
    for axis, most in ((axes.xaxis, 0.8 * inches), (axes.yaxis, height - 0.4)):
        axis.set_label_text(fit(axis.get_label_text(), most, LABEL), fontsize=LABEL)
    for bar in axes.child_axes:
        bar.set_ylabel(fit(bar.get_ylabel(), height - 0.4, LABEL), fontsize=LABEL)


def _draw(axes: Axes, panel: Panel, common: float | None) -> None:
    from matplotlib.ticker import MaxNLocator

    limits = panel.limits
    if limits is None and panel.diverging:
        reach = panel.reach if common is None else common
        limits = -reach, reach
    elif limits is None and common is not None:
        limits = 0.0, common
    if panel.colors is not None:
        _draw_categories(axes, panel.values, panel.colors)
    else:
        options: dict[str, Any] = {} if limits is None else dict(vmin=limits[0], vmax=limits[1])
        image = axes.imshow(panel.values, interpolation='nearest',
                            cmap='RdBu_r' if panel.diverging else 'viridis', **options)
        beyond = limits is not None and float(np.nanmax(panel.values)) > limits[1]
        add_bar(axes, image, panel.unit, beyond)
    if panel.cell is not None:
        mark_cell(axes, panel.cell)
    if panel.prefix:
        for line in (axes.axhline, axes.axvline):
            line(panel.prefix - 0.5, color='red', linewidth=0.6)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.xlabel)
    axes.set_ylabel(panel.ylabel)
    axes.tick_params(labelsize=TICK, length=2)
    for axis, ticks in ((axes.yaxis, panel.yticks), (axes.xaxis, panel.xticks)):
        if ticks is None:
            axis.set_major_locator(MaxNLocator(5, integer=True))
        else:
            axis.set_ticks(list(ticks), labels=list(ticks.values()))


def weight_limits(weights: Array) -> tuple[float, float]:
    """Colours for weights, of which a few (a class token's first of all) may take most: they end
    where all but one of two hundred are below."""
    return 0.0, max(float(np.nanquantile(weights, 0.995)), 1e-12)


def add_bar(axes: Axes, image: Any, unit: str, beyond: bool) -> None:
    """A colour bar; with a pointed end where values lie beyond it."""
    # Inside the axes' own box it is as high as the map, whatever the aspect of that.
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)),
                               extend='max' if beyond else 'neither')
    bar.ax.tick_params(labelsize=TICK)
    bar.ax.yaxis.get_offset_text().set_fontsize(TICK)
    bar.set_label(unit)


def mark_cell(axes: Axes, cell: tuple[float, float]) -> None:
    """A star with a light edge at (row, column), seen on any colour."""
    axes.plot(cell[1], cell[0], marker='*', markersize=7, markerfacecolor='red',
              markeredgecolor='white', markeredgewidth=0.6)


def _draw_categories(axes: Axes, values: Array, colors: Array) -> None:
    """Cells in colours of the palette, with their numbers where there is room."""
    from matplotlib.colors import ListedColormap

    axes.imshow(colors, interpolation='nearest', cmap=ListedColormap(list(PALETTE)), vmin=-0.5,
                vmax=len(PALETTE) - 0.5)
    # About two thirds of a panel are its map, and a number of two digits is as wide as high.
    inches = axes.figure.get_figwidth() / axes.get_subplotspec().get_gridspec().ncols
    points = 0.4 * 72 * 0.66 * inches / max(values.shape)
    if points >= LEAST_NUMBER:
        for (row, col), value in np.ndenumerate(values):
            # Inside its cell, so nothing has to make room for it.
            axes.text(col, row, str(int(value)), fontsize=min(points, TICK), ha='center',
                      va='center').set_in_layout(False)
