"""What ContextPool predicts for an image: weights, sizes, what one token pools, and their figures
(the paper's Figures 3 and 4)."""
from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from mmposenc.encodings.context_pool import ContextPool
from mmposenc.functional.masking import split_prefix
from mmposenc.functional.pooling.kernels import axis_logits

from .maps import Array
from .panels import HEADING, TICK, TITLE, Drawable, Panel, fit, flat_note
from .photo_figures import bare, overlay
from .recording import check_place, watched
from .subjects import Choice, Drawing, NothingToShow, Subject, place_in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class PoolRecord:
    """What one ContextPool predicted for the first image.

    name: of the module. hw_shape, cell: grid and (row, column) of the marked token. weights:
    (H, W), their mean is 1; None where they are not learned. sigma: (H, W) in cells, None without
    sizes. sizes: (H, W), the predicted s from 0 to 1, of which sigma is a multiple. share: (H, W),
    the weights with which the marked token's mean is taken, which sum to 1; None for localities
    without sizes, weights by pairs, and sequences.
    """

    name: str
    hw_shape: tuple[int, int]
    cell: tuple[int, int]
    weights: Array | None
    sigma: Array | None
    share: Array | None
    sizes: Array | None = None


@contextmanager
def record_context_pools(model: nn.Module, at: tuple[float, float] = (0.5, 0.5)
                         ) -> Iterator[list[PoolRecord]]:
    """Record every ContextPool that runs inside ``model``.

    Args:
        model: a backbone or anything that holds one, best in evaluation mode.
        at: where the marked token lies, as fractions of height and width.

    Yields:
        The list that records are added to, in the order in which the layers run.

    Raises:
        ValueError: if ``at`` is not inside the image.
    """
    check_place(at)
    records: list[PoolRecord] = []

    def note(name: str, module: ContextPool, given: dict[str, Any], _: Any) -> None:
        tokens = split_prefix(given['x'], given.get('num_prefix_tokens', 0))[1]
        records.append(_record(name, module, tokens[:1], given['hw_shape'], at))

    with watched(model, ContextPool, note):
        yield records


@torch.no_grad()
def _record(name: str, module: ContextPool, x: Tensor, hw_shape: tuple[int, int],
            at: tuple[float, float]) -> PoolRecord:
    height, width = hw_shape
    cell = int(at[0] * height), int(at[1] * width)
    logits, sigma = module.predict(x, hw_shape)

    def on_map(values: Tensor) -> Array:
        found: Array = values.float().view(height, width).cpu().numpy()
        return found

    weights = None
    if module.has_weights:
        weights = on_map(logits.softmax(1) * logits.shape[1] if module.weights == 'learned'
                         else 2 * logits.sigmoid())
    share = sizes = None
    if sigma is not None:
        extent = height * width if module.dims == 1 else (height + width) / 2
        sizes = on_map(sigma / (module.ratio * extent))
    if sigma is not None and module.dims == 2 and module.weights != 'nonlocal':
        share = on_map(_share(module, logits, sigma, hw_shape, cell))
    return PoolRecord(name, hw_shape, cell, weights, None if sigma is None else on_map(sigma),
                      share, sizes)


def _share(module: ContextPool, logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int],
           cell: tuple[int, int]) -> Tensor:
    """w_j g_ij / sum_j w_j g_ij of one token i, (H, W)."""
    gaussian = module.locality == 'gaussian'
    size = sigma[0, cell[0] * hw_shape[1] + cell[1]] * (1 if gaussian else math.sqrt(3))
    rows, cols = (axis_logits('gaussian' if gaussian else 'window',
                              place - torch.arange(length, dtype=size.dtype, device=size.device),
                              size[None], math.inf, False)
                  for place, length in zip(cell, hw_shape, strict=True))
    own = logits[0].view(hw_shape)
    if module.weights == 'unnormalized':
        own = torch.zeros_like(own)
    return (own + rows[:, None] + cols).flatten().softmax(0)


def size_distributions(records: Sequence[PoolRecord]) -> list[dict[str, str | float]]:
    """The sizes that each layer predicts, in numbers (the paper's Figure 4).

    Args:
        records: from :func:`record_context_pools`, of one image or several; what a layer predicts
            for all of them is taken together.

    Returns:
        For each layer with sizes, in the order in which they ran: 'layer', its name; 'tokens', how
        many there are; 'least', 'q25', 'median', 'q75', 'most' and 'mean' of s, from 0 to 1; and
        'median_cells', the median of sigma.
    """
    found: dict[str, list[PoolRecord]] = {}
    for record in records:
        if record.sizes is not None:
            found.setdefault(record.name, []).append(record)
    rows: list[dict[str, str | float]] = []
    for name, group in found.items():
        sizes = _together(each.sizes for each in group)
        quartiles = np.quantile(sizes, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist()
        rows.append(dict(
            layer=name, tokens=sizes.size, mean=float(sizes.mean()),
            **dict(zip(('least', 'q25', 'median', 'q75', 'most'), quartiles, strict=True)),
            median_cells=float(np.median(_together(each.sigma for each in group)))))
    return rows


def _together(maps: Iterable[Array | None]) -> Array:
    return np.concatenate([np.ravel(each) for each in maps if each is not None])


def write_size_distributions(rows: Sequence[dict[str, str | float]], path: str | Path) -> Path:
    """Write the numbers as CSV, a line a layer."""
    path = Path(path)
    with path.open('w', newline='') as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def pool_panels(record: PoolRecord) -> list[Panel]:
    """Weights, sizes in cells, and what the marked token pools."""
    logs = None if record.weights is None else np.log10(record.weights.clip(1e-12))
    maps = (('log10 of the weights w', logs), ('sizes sigma, cells', record.sigma),
            ('pooled by the marked token', record.share))
    return [Panel(title, values, record.cell) for title, values in maps if values is not None]


def draw_context_pool(record: PoolRecord, image: Array, *, every: int | None = None) -> Figure:
    """The image with circles of radius sigma around some tokens, and the maps next to it.

    Args:
        record: from :func:`record_context_pools`.
        image: (H, W, 3), from 0 to 1.
        every: a circle in every so many-th row and column; by default 5 along the shorter side.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle
    panels = pool_panels(record)
    figure = Figure(figsize=(2.6 * (len(panels) + 1), 2.7), layout='constrained')
    axes = figure.add_subplot(1, len(panels) + 1, 1)
    height, width = record.hw_shape
    axes.imshow(image, extent=(-0.5, width - 0.5, height - 0.5, -0.5))
    if record.sigma is not None:
        step = max(1, min(height, width) // 5) if every is None else every
        for row in range(step // 2, height, step):
            for col in range(step // 2, width, step):
                axes.add_patch(Circle((col, row), float(record.sigma[row, col]), fill=False,
                                      color='yellow', linewidth=1))
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), xticks=[], yticks=[])
    axes.set_title('image and sigma', fontsize=8)
    for place, panel in enumerate(panels, 2):
        axes = figure.add_subplot(1, len(panels) + 1, place)
        shown = axes.imshow(panel.values, interpolation='nearest')
        axes.plot(record.cell[1], record.cell[0], 's', markersize=5, markerfacecolor='none',
                  markeredgecolor='red')
        axes.set(xticks=[], yticks=[])
        axes.set_title(panel.title + flat_note(panel.values), fontsize=8)
        figure.colorbar(shown, ax=axes, fraction=0.046, pad=0.03).ax.tick_params(labelsize=6)
    figure.suptitle(f'ContextPool {place_in_words(record.name)}', fontsize=9)
    return figure


def draw_size_distributions(rows: Sequence[dict[str, str | float]], width: float | None = None
                            ) -> Figure:
    """A box a layer: quartiles, the median as a line, and whiskers to the least and the largest.

    Args:
        rows: from :func:`size_distributions`.
        width: in inches; None takes half an inch a layer.

    Raises:
        ValueError: for no layers.
    """
    from matplotlib.figure import Figure
    if not rows:
        raise ValueError('rows=[] must hold a layer: no ContextPool that ran predicts sizes')
    inches = max(3.0, 1.2 + 0.5 * len(rows)) if width is None else width
    figure = Figure(figsize=(inches, 3.2), layout='constrained')
    axes = figure.add_subplot()
    axes.bxp([dict(label=str(place), whislo=row['least'], q1=row['q25'], med=row['median'],
                   q3=row['q75'], whishi=row['most'], fliers=[])
              for place, row in enumerate(rows, 1)], showfliers=False)
    axes.set_xlabel('ContextPool, in the order they run', fontsize=HEADING)
    axes.set_ylabel('predicted size s', fontsize=HEADING)
    axes.set_ylim(-0.03, 1.03)
    axes.tick_params(labelsize=TICK)
    axes.set_title('quartiles, least and largest', fontsize=TITLE)
    return figure


def draw_sizes(subject: Subject, choice: Choice) -> Drawing:
    """The sizes that each layer predicts for an image (the paper's Figure 4).

    Raises:
        ValueError: for a model whose ContextPools predict no sizes, or that has none.
    """
    records = subject.recorded(record_context_pools)
    rows = size_distributions(records)
    if not rows:
        raise NothingToShow("figure='sizes': the model has no ContextPool that predicts sizes")
    figure = draw_size_distributions(rows, choice.width)
    figure.suptitle(fit(subject.source, figure.get_figwidth(), TITLE), fontsize=TITLE)
    return Drawing(figure, {key: np.array([row[key] for row in rows]) for key in rows[0]})


def draw_pools(subject: Subject, choice: Choice) -> Drawing:
    """The weights and sizes that each ContextPool predicts, on the photo, layer by layer (the
    paper's Figure 3).

    Raises:
        ValueError: for a model whose ContextPools predict neither, or that has none.
    """
    records = subject.recorded(record_context_pools)
    panels: list[Drawable] = [bare(subject)]
    arrays: dict[str, Array] = {}
    for number, record in enumerate(records):
        for kind, unit, values in (('weights', 'weight, mean 1', record.weights),
                                   ('sizes', 'sigma, cells', record.sigma)):
            if values is not None:
                title = f'{place_in_words(record.name)}: {kind}'
                panels.append(overlay(subject, title, values, unit=unit))
                arrays[f'{kind}_{number}'] = values
    if not arrays:
        raise NothingToShow("figure='pools': the model has no ContextPool that predicts weights "
                            'or sizes')
    return subject.drawing(panels, 'What ContextPool predicts', choice, arrays)
