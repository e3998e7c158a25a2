"""Draws maps, and keeps the sentence and the numbers of each picture."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[Any]


@dataclass
class Picture:
    """A picture of what an encoding does.

    Attributes:
        name: the name of its file.
        sentence: how to read it.
        panels: its maps; none where there is nothing to show.
        numbers: what is shown, as numbers, text, lists and dicts.
        style: arguments of :func:`draw_maps`.
    """

    name: str
    sentence: str
    panels: Sequence[Panel]
    numbers: dict[str, Any]
    style: dict[str, Any]

    def draw(self) -> Figure:
        """Make the figure."""
        return draw_maps(self.panels, **self.style)


@dataclass
class Panel:
    """One map (rows, columns) of a figure.

    Attributes:
        title: above the map.
        values: the map; NaN stays white.
        ticks: the values at the first and last row, and at the first and last column; None: no
            ticks.
        star: row and column of a place that is marked, in cells.
        categories: whether numbers are names: each has a colour of a list that repeats.
        photo: (h, w, 3) from 0 to 1 below the map.
    """

    title: str
    values: Array
    ticks: tuple[tuple[float, float], tuple[float, float]] | None = None
    star: tuple[float, float] | None = None
    categories: bool = False
    photo: Array | None = None


def draw_maps(panels: Sequence[Panel], unit: str = '', xlabel: str = '', ylabel: str = '', *,
              diverging: bool = False, columns: int = 4, inches: float = 2.4) -> Figure:
    """Draw maps side by side with one range of colours.

    Args:
        panels: the maps.
        unit: the unit of the colour bar; there is none for categories.
        xlabel, ylabel: the labels of the axes.
        diverging: colours in both directions from 0.
        columns: how many maps stand in a row.
        inches: width and height of a panel.
    """
    from matplotlib.figure import Figure  # Draws without a display and without global state.

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(columns * inches + 0.6, rows * (inches + 0.4)), layout='constrained')
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    finite = [each.values[np.isfinite(each.values)] for each in panels]
    top = max((float(np.abs(each).max()) for each in finite if each.size), default=0.0) or 1.0
    for axis, panel in zip(axes, panels, strict=False):
        height, width = panel.values.shape
        extent = (-0.5, width - 0.5, height - 0.5, -0.5)
        if panel.photo is not None:
            axis.imshow(panel.photo.mean(-1), cmap='gray', vmin=-0.3, vmax=1.0, extent=extent)
        if panel.categories:
            axis.imshow(panel.values % 20, cmap='tab20', vmin=0, vmax=19, interpolation='nearest')
        else:
            axis.imshow(panel.values, interpolation='nearest', extent=extent,
                        cmap='RdBu_r' if diverging else 'viridis',
                        vmin=-top if diverging else 0.0, vmax=top,
                        alpha=1.0 if panel.photo is None else 0.6)
        _label_axis(axis, panel, xlabel, ylabel)
    for axis in axes[len(panels):]:
        axis.remove()
    if not panels[0].categories:
        figure.colorbar(axes[0].images[-1], ax=axes[:len(panels)], label=unit, shrink=0.8)
    return figure


def _label_axis(axis: Axes, panel: Panel, xlabel: str, ylabel: str) -> None:
    rows, columns = panel.values.shape
    if panel.star is not None:
        axis.plot(panel.star[1], panel.star[0], marker='*', markersize=8, markerfacecolor='red',
                  markeredgecolor='white')
    axis.set_title(panel.title, fontsize=7)
    axis.set_xlabel(xlabel, fontsize=7)
    axis.set_ylabel(ylabel, fontsize=7)
    axis.tick_params(labelsize=6)
    for side, number, ends in ((axis.yaxis, rows, panel.ticks and panel.ticks[0]),
                               (axis.xaxis, columns, panel.ticks and panel.ticks[1])):
        labels = [f'{each:g}' for each in ends or ()][:number]
        side.set_ticks([0, number - 1][:len(labels)], labels=labels)


def tile_sheet(maps: Array) -> Array:
    """Arrange maps (R, C, h, w) as one map, with a cell of NaN between them."""
    tiles = np.pad(maps.astype(float), ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)
    rows, columns, height, width = tiles.shape
    return tiles.swapaxes(1, 2).reshape(rows * height, columns * width)[:-1, :-1]
