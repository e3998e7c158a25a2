"""Maps of tokens on the photo that they were taken from."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .figures import TICK, add_bar, mark_cell
from .maps import Array
from .recording import AttentionRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How much of the photo a map hides, and the light grey that the photo is drawn in under one.
OPACITY, LIGHTEST = 0.65, 0.25
#: (top, left, height, width) as shares of the photo.
Box = tuple[float, float, float, float]


@dataclass
class PhotoPanel:
    """A photo at its own aspect, and a map on it.

    photo: (h, w, 3) from 0 to 1; None leaves it out. aspect: height by width. values: (rows,
    columns) of the map, NaN where the photo is bare; None shows the photo alone. covers: height and
    width of the map as shares of the photo; cells of keys that pool padding lie beyond it. points:
    places that are marked, as shares of height and width. box: the cell of the query. unit, limits:
    as of :class:`.figures.Panel`. windowed: outline where values are.
    """

    title: str
    photo: Array | None
    aspect: float
    values: Array | None = None
    covers: tuple[float, float] = (1.0, 1.0)
    points: Sequence[tuple[float, float]] = ()
    box: Box | None = None
    unit: str = ''
    limits: tuple[float, float] | None = None
    windowed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """See :class:`.figures.Drawable`."""
        return (1000, round(1000 / self.aspect))

    @property
    def reach(self) -> float:
        """See :class:`.figures.Drawable`."""
        return 0.0 if self.values is None else float(np.nanmax(np.abs(self.values)))

    def draw(self, axes: Axes, common: float | None) -> None:
        """See :class:`.figures.Drawable`. Places are shares: 0 to 1 on both axes."""
        if self.photo is not None:
            photo = self.photo if self.values is None else _grey(self.photo)
            axes.imshow(photo, extent=(0, 1, 1, 0), aspect='auto', interpolation='antialiased')
        if self.values is not None:
            self._draw_map(axes, self.values, common)
        if self.box is not None:
            top, left, height, width = self.box
            axes.plot([left, left + width, left + width, left, left],
                      [top, top, top + height, top + height, top], color='red', linewidth=0.8)
        for number, (row, column) in enumerate(self.points, 1):
            mark_cell(axes, (row, column))
            if len(self.points) > 1:
                axes.annotate(str(number), (column, row), (4, 3), textcoords='offset points',
                              fontsize=TICK, color='white', fontweight='bold',
                              path_effects=_edge())
        axes.set(xlim=(0, 1), ylim=(1, 0), xticks=[], yticks=[], title=self.title)
        axes.set_box_aspect(self.aspect)

    def _draw_map(self, axes: Axes, values: Array, common: float | None) -> None:
        down, across = self.covers
        high = float(np.nanmax(values)) if common is None else common
        low, high = (0.0, high) if self.limits is None else self.limits
        image = axes.imshow(values, extent=(0, across, down, 0), aspect='auto', cmap='viridis',
                            interpolation='nearest', vmin=low, vmax=high,
                            alpha=1.0 if self.photo is None else OPACITY)
        add_bar(axes, image, self.unit, bool(np.nanmax(values) > high))
        if self.windowed:
            lines = outline(np.isfinite(values)) * (down / values.shape[0],
                                                    across / values.shape[1])
            for start, end in lines:
                axes.plot([start[1], end[1]], [start[0], end[0]], color='white', linewidth=1.2)
                axes.plot([start[1], end[1]], [start[0], end[0]], color='black', linewidth=0.6)


def _grey(photo: Array) -> Array:
    """A photo without colour, and light, so that the map's colours are seen on it."""
    grey = photo @ np.array([0.299, 0.587, 0.114])
    found: Array = np.repeat((LIGHTEST + (1 - LIGHTEST) * grey)[..., None], 3, 2)
    return found


def _edge() -> list[Any]:
    from matplotlib.patheffects import withStroke
    return [withStroke(linewidth=1.5, foreground='black')]


def outline(inside: Array) -> Array:
    """The edges between cells that are inside and those that are not, or the border.

    Args:
        inside: (rows, columns) bool.

    Returns:
        (N, 2, 2): start and end of each edge as (row, column), in cells from the upper left corner.
    """
    framed = np.pad(inside, 1)
    edges = [((row, col), (row, col + 1))
             for row, col in np.argwhere(framed[1:, 1:-1] != framed[:-1, 1:-1]).tolist()]
    edges += [((row, col), (row + 1, col))
              for row, col in np.argwhere(framed[1:-1, 1:] != framed[1:-1, :-1]).tolist()]
    return np.array(edges, float).reshape(-1, 2, 2)


def on_photo(record: AttentionRecord, by_key: Array) -> tuple[Array, tuple[float, float]]:
    """What a query has for each key, where the keys lie on the photo.

    Args:
        record: of the layer.
        by_key: (Hk, Wk).

    Returns:
        The map (rows, columns), of a window the map that it was cut from with NaN outside of it,
        and what it covers as :class:`PhotoPanel` takes it.

    Raises:
        ValueError: for a window that was cut from no map.
    """
    if record.window is None:
        covers = [keys * stride / queries for keys, stride, queries
                  in zip(record.key_shape, record.key_strides, record.hw_shape, strict=True)]
        return by_key, (covers[0], covers[1])
    height, width = _map_shape(record)
    down, across = (-(-side // cells) * cells
                    for side, cells in zip((height, width), record.hw_shape, strict=True))
    full = np.full((down, across), np.nan)
    top, left = (place * cells for place, cells in zip(record.window, record.hw_shape, strict=True))
    full[top:top + record.hw_shape[0], left:left + record.hw_shape[1]] = by_key
    # Windows are cut from a map that was filled up and rolled up and left.
    return np.roll(full, record.shift, (0, 1))[:height, :width], (1.0, 1.0)


def query_box(record: AttentionRecord) -> Box:
    """Where the query's cell lies on the photo.

    Raises:
        ValueError: for a window that was cut from no map.
    """
    if record.window is None:
        (row, col), (height, width) = record.cell, record.hw_shape
    else:
        height, width = _map_shape(record)
        row, col = ((place * cells + cell + step) % (-(-side // cells) * cells)
                    for place, cells, cell, step, side
                    in zip(record.window, record.hw_shape, record.cell, record.shift,
                           (height, width), strict=True))
    return row / height, col / width, 1 / height, 1 / width


def check_whole(shape: tuple[int, int], size: tuple[int, int] | None) -> None:
    """Refuse an image that cells do not fill, on which places would be a little off.

    Args:
        shape: (H, W) of the grid.
        size: (H, W) of the image in pixels; None is not known.

    Raises:
        ValueError: if a side of the image is no multiple of that of the grid.
    """
    if size is not None and any(side % cells for side, cells in zip(size, shape, strict=True)):
        raise ValueError(f'size={size} must be whole cells of the {shape[0]} x {shape[1]} that '
                         f'the model has, so that they lie where the photo shows them')


def _map_shape(record: AttentionRecord) -> tuple[int, int]:
    if record.map_shape is None:
        raise ValueError(f'{record.name} runs in windows that were cut from no map of this '
                         f'project, so nothing says where on the photo they lie')
    return record.map_shape
