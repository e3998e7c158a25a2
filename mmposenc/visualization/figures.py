"""Maps as figures. Matplotlib is imported when one is drawn, and no window is ever opened."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .maps import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Panel:
    """One map (rows, columns) of a figure.

    cell: (row, column) that is marked, in cells of the map, fractions allowed. diverging: colours
    in both directions from 0, for terms that may be negative.
    """

    title: str
    values: Array
    cell: tuple[float, float] | None = None
    diverging: bool = False


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
    figure = Figure(figsize=(columns * cell_inches, rows * cell_inches), layout='constrained')
    largest = max(float(np.abs(panel.values).max()) for panel in panels)
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        limits: dict[str, object] = {}
        if panel.diverging:
            reach = largest if same_scale else float(np.abs(panel.values).max())
            limits = dict(cmap='RdBu_r', vmin=-reach, vmax=reach)
        elif same_scale:
            limits = dict(vmin=0.0, vmax=largest)
        image = axes.imshow(panel.values, interpolation='nearest', **limits)
        if panel.cell is not None:
            axes.plot(panel.cell[1], panel.cell[0], marker='s', markersize=5,
                      markerfacecolor='none', markeredgecolor='red')
        axes.set_title(panel.title, fontsize=8)
        axes.set_xticks([])
        axes.set_yticks([])
        bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03)
        bar.ax.tick_params(labelsize=6)
    if title is not None:
        figure.suptitle(title, fontsize=9)
    return figure


def save_figure(figure: Figure, path: str | Path, dpi: int = 110) -> Path:
    """Write a figure, by the suffix of ``path``, and make its folder."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=dpi)
    return path
