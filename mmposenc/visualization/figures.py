"""Maps as figures. Matplotlib is imported when one is drawn, and no window is ever opened."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .categories import PALETTE
from .maps import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What a figure can be written as.
SUFFIXES = ('.png', '.pdf', '.svg')
#: Largest sides of a map of categories whose numbers fit into the cells.
NUMBERED = (16, 16)


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


def draw_panels(panels: Sequence[Panel], *, columns: int = 4, title: str | None = None,
                same_scale: bool = False, cell_inches: float = 2.2) -> Figure:
    """Draw maps side by side, each with its colour bar.

    Args:
        panels: the maps.
        columns: in a row of the figure.
        title: of the whole figure.
        same_scale: one range of colours for all.
        cell_inches: width and height of a panel.

    Raises:
        ValueError: for no panels, or one whose values are not (rows, columns).
    """
    from matplotlib.figure import Figure  # draws without a display and without global state

    if not panels:
        raise ValueError('panels=[] must hold at least one map')
    for panel in panels:
        if panel.values.ndim != 2:
            raise ValueError(f'panel {panel.title!r} has values of shape {panel.values.shape}; '
                             f'(rows, columns) is required')
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    tallest = max(panel.values.shape[0] / panel.values.shape[1] for panel in panels)
    height = cell_inches * (0.3 + 0.7 * min(max(tallest, 0.2), 2.0))
    figure = Figure(figsize=(columns * cell_inches, rows * height + 0.3 * (title is not None)),
                    layout='constrained')
    largest = max(_reach(panel) for panel in panels)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        _draw(axes, panel, largest if same_scale else None)
    if title is not None:
        figure.suptitle(title, fontsize=8)
    return figure


def _reach(panel: Panel) -> float:
    """The largest magnitude; gaps of a sheet are NaN."""
    return float(np.nanmax(np.abs(panel.values)))


def _draw(axes: Axes, panel: Panel, common: float | None) -> None:
    from matplotlib.ticker import MaxNLocator

    limits = panel.limits
    if limits is None and panel.diverging:
        reach = _reach(panel) if common is None else common
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
        bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03,
                                   extend='max' if beyond else 'neither')
        bar.ax.tick_params(labelsize=5)
        bar.set_label(panel.unit, fontsize=6)
    if panel.cell is not None:
        mark_cell(axes, panel.cell)
    if panel.prefix:
        for line in (axes.axhline, axes.axvline):
            line(panel.prefix - 0.5, color='red', linewidth=0.6)
    axes.set_title(panel.title, fontsize=7)
    axes.set_xlabel(panel.xlabel, fontsize=6)
    axes.set_ylabel(panel.ylabel, fontsize=6)
    axes.tick_params(labelsize=5, length=2)
    for axis, ticks in ((axes.yaxis, panel.yticks), (axes.xaxis, panel.xticks)):
        if ticks is None:
            axis.set_major_locator(MaxNLocator(5, integer=True))
        else:
            axis.set_ticks(list(ticks), labels=list(ticks.values()))


def mark_cell(axes: Axes, cell: tuple[float, float]) -> None:
    """A star with a light edge at (row, column), seen on any colour."""
    axes.plot(cell[1], cell[0], marker='*', markersize=7, markerfacecolor='red',
              markeredgecolor='white', markeredgewidth=0.6)


def _draw_categories(axes: Axes, values: Array, colors: Array) -> None:
    """Cells in colours of the palette, with their numbers where there is room."""
    from matplotlib.colors import ListedColormap

    axes.imshow(colors, interpolation='nearest', cmap=ListedColormap(list(PALETTE)), vmin=-0.5,
                vmax=len(PALETTE) - 0.5)
    if all(side <= most for side, most in zip(values.shape, NUMBERED, strict=True)):
        for (row, col), value in np.ndenumerate(values):
            # Inside its cell, so nothing has to make room for it.
            axes.text(col, row, str(int(value)), fontsize=4, ha='center', va='center'
                      ).set_in_layout(False)


def tile_sheet(maps: Array, gap: int = 1) -> Array:
    """Maps (R, C, h, w) side by side as one map, with NaN between them."""
    rows, cols, height, width = maps.shape
    sheet = np.full((rows * (height + gap), cols * (width + gap)), np.nan)
    for row in range(rows):
        for col in range(cols):
            top, left = row * (height + gap), col * (width + gap)
            sheet[top:top + height, left:left + width] = maps[row, col]
    return sheet[:rows * (height + gap) - gap, :cols * (width + gap) - gap]


def tile_ticks(labels: Sequence[object], side: int, gap: int = 1) -> dict[float, str]:
    """Ticks in the middle of tiles of ``side`` cells, at most about ten of them."""
    step = -(-len(labels) // 10)
    return {place * (side + gap) + (side - 1) / 2: str(labels[place])
            for place in range(0, len(labels), step)}


def checked_path(path: str | Path, argument: str, suffixes: tuple[str, ...] = SUFFIXES) -> Path:
    """The path of a file to write.

    Raises:
        ValueError: for another suffix, or a folder.
    """
    path = Path(path)
    if path.suffix not in suffixes:
        raise ValueError(f'{argument}={str(path)!r} must end in {", ".join(suffixes)}')
    if path.is_dir():
        raise ValueError(f'{argument}={str(path)!r} is a folder; a file is required')
    return path


def save_figure(figure: Figure, path: str | Path, dpi: int = 110) -> Path:
    """Write a figure, by the suffix of ``path``, and make its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path
