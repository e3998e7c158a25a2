"""Maps of tokens on the photo that they were taken from: attention and attention rollout."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from .maps import Array
from .panels import TICK, Drawable, add_bar, mark_cell, upper_end, weight_limits
from .recording import AttentionCall, AttentionRecord, check_place, watch_attention
from .subjects import (
    Choice,
    Drawing,
    NothingToShow,
    Subject,
    head_text,
    of_head,
    place_in_words,
)

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
    as of :class:`.panels.Panel`. windowed: outline where values are.
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

    def draw(self, axes: Axes, common: float | None) -> None:
        """See :class:`.panels.Drawable`. Places are shares: 0 to 1 on both axes."""
        from matplotlib.patheffects import withStroke

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
                              path_effects=[withStroke(linewidth=1.5, foreground='black')])
        axes.set(xlim=(0, 1), ylim=(1, 0), xticks=[], yticks=[], title=self.title)
        axes.set_box_aspect(self.aspect)

    def _draw_map(self, axes: Axes, values: Array, common: float | None) -> None:
        down, across = self.covers
        low, high = 0.0, upper_end(self) if common is None else common
        image = axes.imshow(values, extent=(0, across, down, 0), aspect='auto', cmap='viridis',
                            interpolation='nearest', vmin=low, vmax=high,
                            alpha=1.0 if self.photo is None else OPACITY)
        add_bar(axes, image, self.unit, bool(np.nanmax(values) > high))
        if self.windowed:
            lines = outline(np.isfinite(values)) * (down / values.shape[0],
                                                    across / values.shape[1])
            for (top, left), (bottom, right) in lines:
                for color, width in (('white', 1.2), ('black', 0.6)):
                    axes.plot([left, right], [top, bottom], color=color, linewidth=width)


def _grey(photo: Array) -> Array:
    """A photo without colour, and light, so that the map's colours are seen on it."""
    grey = photo @ np.array([0.299, 0.587, 0.114])
    found: Array = np.repeat((LIGHTEST + (1 - LIGHTEST) * grey)[..., None], 3, 2)
    return found


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


#: The share of a layer that passes it by, in its residual connection.
RESIDUAL = 0.5


@dataclass
class Rollout:
    """What was gathered of one pass.

    matrix: (P + L, P + L), the share of each token of the input (columns) in each of the output
    (rows); None before a layer ran. hw_shape: (H, W). num_prefix_tokens: P. names: of the layers.
    """

    matrix: Array | None = None
    hw_shape: tuple[int, int] = (0, 0)
    num_prefix_tokens: int = 0
    names: list[str] = field(default_factory=list)


def rollout_step(before: Array | None, weights: Array) -> Array:
    """One layer more (Abnar and Zuidema, ACL 2020, Sec. 3): A = .5 I + .5 mean of the heads, rows
    normalised, times what came before.

    Args:
        before: (L, L) of the layers below; None for the first.
        weights: (heads, L, L) after the softmax.

    Returns:
        (L, L); rows sum to 1.
    """
    mixed = (RESIDUAL * np.eye(weights.shape[-1])
             + (1 - RESIDUAL) * weights.mean(0, dtype=np.float64))
    mixed /= mixed.sum(-1, keepdims=True)
    step: Array = mixed if before is None else mixed @ before
    return step


@contextmanager
def record_rollout(model: nn.Module) -> Iterator[Rollout]:
    """Multiply the attention of every layer inside ``model`` while it runs, of the first image.

    What other layers do (feed-forward networks, token encodings that mix tokens) is left out, as in
    the paper.

    Yields:
        What is filled in as layers run.

    Raises:
        ValueError: while the model runs, for layers whose queries and keys are not all tokens of
            one grid (windows, reduced keys, stages), between which weights have no product.
    """
    found = Rollout()

    def note(call: AttentionCall) -> None:
        layout = call.layout((0.0, 0.0))
        if layout.window is not None or layout.key.hw != layout.grid.hw:
            raise NothingToShow(f"figure='rollout': {call.name} attends in windows or to "
                                f'reduced keys; layers in which all tokens meet are required. '
                                f"figure='overlay' shows one such layer")
        if found.names and found.hw_shape != layout.grid.hw:
            raise NothingToShow(
                f"figure='rollout': {call.name} runs on {layout.grid.hw} cells and "
                f'{found.names[-1]} on {found.hw_shape}; layers of one grid are required. '
                f"figure='overlay' shows one of them")
        found.matrix = rollout_step(found.matrix, call.weights[0].float().cpu().numpy())
        found.hw_shape, found.num_prefix_tokens = layout.grid.hw, call.num_prefix_tokens
        found.names.append(call.name)

    with watch_attention(model, note):
        yield found


def draw_overlay(subject: Subject, choice: Choice) -> Drawing:
    """The attention of some points of the photo in one layer, on the photo: a panel a point, of the
    first prefix token also (ViT, Dosovitskiy et al., ICLR 2021, Fig. 6; DINO, Caron et al., ICCV
    2021, Fig. 1).

    In windows the window that holds the point is outlined.

    Raises:
        ValueError: for a block, head or place that is not there, or an image that is no whole
            number of cells.
    """
    places = list(choice.places) or [(0.5, 0.5)]
    records = [subject.attention(choice.block, at) for at in places]
    check_whole(records[0].map_shape or records[0].hw_shape, subject.size)
    panels: list[Drawable] = [bare(subject, places)]
    arrays: dict[str, Array] = {'places': np.array(places),
                                'cells': np.array([query_box(each) for each in records])}
    heads = records[0].weights
    if records[0].num_prefix_tokens and choice.prefix:
        assert records[0].all_weights is not None
        row = of_head(records[0].all_weights, choice.head)[0, records[0].num_prefix_tokens:]
        values, covers = on_photo(records[0], row.reshape(records[0].key_shape))
        panels.append(overlay(subject, 'first prefix token', values, covers))
        arrays['prefix'] = values
    for number, (at, record) in enumerate(zip(places, records, strict=True), 1):
        values, covers = on_photo(record, of_head(record.weights, choice.head))
        panels.append(overlay(subject, f'point {number}{record.window_text}', values, covers, at,
                              query_box(record), windowed=record.window is not None))
        arrays[f'point_{number}'] = values
    title = f'Attention in {place_in_words(records[0].name)}, {head_text(heads, choice.head)}'
    return subject.drawing(panels, title, choice, arrays)


def draw_rollout(subject: Subject, choice: Choice) -> Drawing:
    """Attention rollout on the photo (Abnar and Zuidema, ACL 2020): what the tokens of the last
    layer are made of, by :func:`.photo_figures.rollout_step`.

    A panel for the first prefix token, or where there is none for the mean of all cells, and one a
    point that is given. What is taken of prefix tokens is not shown, so maps sum to less than 1
    where there are any.

    Raises:
        ValueError: for layers that have no product (windows, reduced keys, stages), or an image
            that is no whole number of cells.
    """
    for at in choice.places:
        check_place(at)
    found = subject.recorded(record_rollout)
    if found.matrix is None:
        raise NothingToShow("figure='rollout': the model has no attention layers on a grid")
    (height, width), prefix = found.hw_shape, found.num_prefix_tokens
    check_whole(found.hw_shape, subject.size)
    maps = found.matrix[:, prefix:].reshape(-1, height, width)
    first = 'first prefix token' if prefix else 'mean of all cells'
    panels: list[Drawable] = [bare(subject, choice.places)]
    arrays: dict[str, Array] = {'matrix': found.matrix,
                                'first': maps[0] if prefix else maps.mean(0)}
    panels.append(overlay(subject, first, arrays['first'], unit='share'))
    for number, (y, x) in enumerate(choice.places, 1):
        row, col = int(y * height), int(x * width)
        values = maps[prefix + row * width + col]
        box = row / height, col / width, 1 / height, 1 / width
        panels.append(overlay(subject, f'point {number}', values, at=(y, x), box=box, unit='share'))
        arrays[f'point_{number}'] = values
    return subject.drawing(panels, f'Attention rollout, {len(found.names)} layers', choice, arrays)


def bare(subject: Subject, places: Sequence[tuple[float, float]] = ()) -> PhotoPanel:
    """The photo alone, with points on it."""
    title = 'photo' if subject.picture is not None else 'input is noise'
    return PhotoPanel(title, subject.picture, aspect_of(subject), points=places)


def overlay(subject: Subject, title: str, values: Array, covers: tuple[float, float] = (1.0, 1.0),
            at: tuple[float, float] | None = None, box: Box | None = None, *,
            unit: str = 'attention weight', windowed: bool = False) -> PhotoPanel:
    """A map on the photo."""
    return PhotoPanel(title, subject.picture, aspect_of(subject), values, covers,
                      () if at is None else (at,), box, unit, weight_limits(values), windowed)


def aspect_of(subject: Subject) -> float:
    """Height by width of the photo; of noise that of the input."""
    if subject.picture is not None:
        return subject.picture.shape[0] / subject.picture.shape[1]
    return 1.0 if subject.size is None else subject.size[0] / subject.size[1]
