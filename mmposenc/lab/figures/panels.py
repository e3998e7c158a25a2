"""Maps as figures, and figures as files. Matplotlib is imported when one is drawn, and no window is
ever opened."""
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .maps import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's colours for all kinds of colour vision, grey in place of black, which would hide
#: what is written on it.
PALETTE = ('#E69F00', '#56B4E9', '#009E73', '#F0E442', '#0072B2', '#D55E00', '#CC79A7', '#999999')


def neighbours(maps: Sequence[Array]) -> dict[int, set[int]]:
    """For every category the others that touch it in some map, corners included."""
    found: dict[int, set[int]] = {int(value): set() for each in maps for value in np.unique(each)}
    for each in maps:
        for one, other in ((each[1:], each[:-1]), (each[:, 1:], each[:, :-1]),
                           (each[1:, 1:], each[:-1, :-1]), (each[1:, :-1], each[:-1, 1:])):
            pairs = np.unique(np.stack((one.ravel(), other.ravel())), axis=1).T
            for a, b in pairs.tolist():
                if a != b:
                    found[a].add(b)
                    found[b].add(a)
    return found


def color_categories(maps: Sequence[Array]) -> list[Array]:
    """Numbers in :data:`PALETTE` for the cells of maps of whole numbers, one colour a category.

    Categories that touch get different colours, the least used ones first; those with most
    neighbours choose first. Where a category touches as many others as there are colours, it
    shares one with a neighbour.

    Args:
        maps: (H, W) each, in the same categories.

    Returns:
        For each map (H, W) whole numbers below ``len(PALETTE)``.
    """
    touching = neighbours(maps)
    used = [0] * len(PALETTE)
    chosen: dict[int, int] = {}
    for category in sorted(touching, key=lambda each: (-len(touching[each]), each)):
        taken = {chosen[other] for other in touching[category] if other in chosen}
        free = [color for color in range(len(PALETTE)) if color not in taken]
        color = min(free or range(len(PALETTE)), key=lambda each: (used[each], each))
        used[color] += 1
        chosen[category] = color
    lookup = np.vectorize(chosen.__getitem__, otypes=[int])
    return [lookup(each) for each in maps]


#: Cells between two tiles.
_GAP = 1


def tile_sheet(maps: Array) -> Array:
    """Maps (R, C, h, w) side by side as one map, with NaN between them."""
    gaps = ((0, 0), (0, 0), (0, _GAP), (0, _GAP))
    tiles = np.pad(maps.astype(float), gaps, constant_values=np.nan)  # (R, C, h + 1, w + 1)
    rows, cols, height, width = tiles.shape
    return tiles.swapaxes(1, 2).reshape(rows * height, cols * width)[:-_GAP, :-_GAP]


def tile_ticks(labels: Sequence[object], side: int) -> dict[float, str]:
    """Ticks in the middle of tiles of ``side`` cells, at most about ten of them."""
    step = -(-len(labels) // 10)
    return {place * (side + _GAP) + (side - 1) / 2: str(labels[place])
            for place in range(0, len(labels), step)}


def tile_axes(cells: list[list[tuple[int, int]]], tile: tuple[int, int]) -> dict[str, Any]:
    """Labels and ticks of a sheet with a tile for each reference cell."""
    references = [line[0][0] for line in cells], [cell[1] for cell in cells[0]]
    found: dict[str, Any] = {}
    for letter, axis, places, side in zip('yx', ('row', 'column'), references, tile, strict=True):
        found[f'{letter}label'] = f'{axis} of the reference cell; a tile holds {side} key {axis}s'
        found[f'{letter}ticks'] = tile_ticks(places, side)
    return found


#: Points of what is written, from the title of a figure to ticks: legible in a column of a paper.
TITLE, HEADING, LABEL, TICK = 8, 7, 6.5, 6
#: Points of the smallest number that is written into a cell.
LEAST_NUMBER = 3.5
#: Inches below which a panel is not made narrower; a figure then has fewer columns.
NARROWEST = 1.5


class Drawable(Protocol):
    """What :func:`draw_panels` draws: a map (rows, columns), or None."""

    title: str
    values: Any
    unit: str
    limits: tuple[float, float] | None

    @property
    def aspect(self) -> float:
        """Height by width, for the height of the panel."""

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
    def aspect(self) -> float:
        """See :class:`Drawable`."""
        rows, columns = self.values.shape
        return float(rows / columns)

    def draw(self, axes: Axes, common: float | None) -> None:
        """See :class:`Drawable`."""
        from matplotlib.ticker import MaxNLocator

        limits = self.limits
        if self.diverging:
            reach = upper_end(self) if common is None else common
            limits = -reach, reach
        elif common is not None:
            limits = 0.0, common
        if self.colors is not None:
            _draw_categories(axes, self.values, self.colors)
        else:
            options: dict[str, Any] = {} if limits is None else dict(vmin=limits[0], vmax=limits[1])
            image = axes.imshow(self.values, interpolation='nearest',
                                cmap='RdBu_r' if self.diverging else 'viridis', **options)
            beyond = limits is not None and float(np.nanmax(self.values)) > limits[1]
            add_bar(axes, image, self.unit, beyond)
        if self.cell is not None:
            mark_cell(axes, self.cell)
        if self.prefix:
            for line in (axes.axhline, axes.axvline):
                line(self.prefix - 0.5, color='red', linewidth=0.6)
        axes.set_title(self.title)
        axes.set_xlabel(self.xlabel)
        axes.set_ylabel(self.ylabel)
        axes.tick_params(labelsize=TICK, length=2)
        for axis, ticks in ((axes.yaxis, self.yticks), (axes.xaxis, self.xticks)):
            if ticks is None:
                axis.set_major_locator(MaxNLocator(5, integer=True))
            else:
                axis.set_ticks(list(ticks), labels=list(ticks.values()))


def draw_panels(panels: Sequence[Drawable], *, columns: int = 4, title: str | None = None,
                same_scale: bool = False, cell_inches: float = 2.2, width: float | None = None,
                narrowest: float = NARROWEST) -> Figure:
    """Draw maps side by side, each with its colour bar. Maps of one unit have one range of colours,
    so that they can be compared; a map whose values are all alike says so.

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
        if panel.values is not None and panel.values.ndim != 2:
            raise ValueError(f'panel {panel.title!r} has values of shape {panel.values.shape}; '
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
    ends: dict[str, float] = {}
    for panel in panels:
        scale = 'all' if same_scale else panel.unit
        ends[scale] = max(ends.get(scale, 0.0), upper_end(panel))
    for place, panel in enumerate(panels, 1):
        axes = figure.add_subplot(rows, columns, place)
        panel.draw(axes, ends['all'] if same_scale else ends[panel.unit] if panel.unit else None)
        axes.set_title(axes.get_title() + flat_note(panel.values))
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
    tallest = max(panel.aspect for panel in panels)
    # Labels and a colour bar take about 0.9 inches of the width, titles and labels 0.6 in height.
    return 0.6 + max(inches - 0.9, 0.55 * inches) * min(max(tallest, 0.2), 2.0)


def largest(values: Array | None) -> float:
    """The largest magnitude of a map, whose gaps are NaN."""
    return 0.0 if values is None else float(np.nanmax(np.abs(values)))


def upper_end(panel: Drawable) -> float:
    """Where the colours of a map end, drawn alone."""
    return largest(panel.values) if panel.limits is None else panel.limits[1]


def flat_note(values: Array | None) -> str:
    """A line for the title of a map whose values differ by less than a thousandth; else ''."""
    seen = np.zeros(0) if values is None else values[np.isfinite(values)]
    if seen.size < 2 or np.ptp(seen) > 1e-3 * np.abs(seen).max():
        return ''
    return f'\nflat: {seen.mean() + 0:.3g} everywhere'


def plot_figure(width: float | None, title: str, xlabel: str, ylabel: str
                ) -> tuple[Figure, Axes]:
    """A figure of one plot of curves, 5 inches wide if not told, and its axes."""
    from matplotlib.figure import Figure

    inches = 5.0 if width is None else width
    figure = Figure(figsize=(inches, 0.64 * inches + 0.3), layout='constrained')
    axes = figure.add_subplot()
    axes.tick_params(labelsize=TICK)
    axes.grid(linewidth=0.3)
    axes.set_xlabel(fit(xlabel, 0.8 * inches, HEADING), fontsize=HEADING)
    axes.set_ylabel(ylabel, fontsize=HEADING)
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


def weight_limits(weights: Array) -> tuple[float, float]:
    """Colours for weights, of which a few (a class token's first of all) may take most: they end
    where all but one of two hundred are below."""
    return 0.0, max(float(np.nanquantile(weights, 0.995)), 1e-12)


def add_bar(axes: Axes, image: Any, unit: str, beyond: bool) -> None:
    """A colour bar; with a pointed end where values lie beyond it."""
    # Inside the axes' own box it is as high as the map, whatever the aspect of that.
    bar = axes.figure.colorbar(image, cax=axes.inset_axes((1.04, 0.0, 0.05, 1.0)),
                               extend='max' if beyond else 'neither')
    bar.solids.set(rasterized=False, edgecolor='face', linewidth=0.2)  # shapes in PDF and SVG
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


#: What a figure can be written as.
SUFFIXES = ('.png', '.pdf', '.svg')
#: Text that stays text: TrueType in PDF, and letters in SVG. Journals refuse Type 3 fonts.
RC = {'pdf.fonttype': 42, 'ps.fonttype': 42, 'svg.fonttype': 'none', 'svg.hashsalt': 'mmposenc'}


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


def save_figure(figure: Figure, path: str | Path, dpi: float = 110, *, small: bool = False) -> Path:
    """Write a figure, by the suffix of ``path``, and make its folder.

    Letters are written as text in PDF and SVG, and no date, so that the same model drawn again
    gives the same file.

    Args:
        figure: the figure.
        path: the file.
        dpi: pixels an inch, of a PNG and of maps inside the others.
        small: a PNG of 256 colours, a third of the size or less, for pages.
    """
    from matplotlib import rc_context

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    undated = {'.pdf': {'CreationDate': None}, '.svg': {'Date': None}}.get(path.suffix, {})
    with rc_context(RC):
        figure.savefig(path, dpi=dpi, metadata=undated)
    if small and path.suffix == '.png':
        from PIL import Image
        with Image.open(path) as picture:
            few = picture.convert('RGB').quantize(
                256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    return path
