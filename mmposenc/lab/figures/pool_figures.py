"""Figures of what ContextPool predicts for an image (the paper's Figures 3 and 4)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .figures import HEADING, TICK, TITLE, Drawable, Panel, draw_panels, fit
from .maps import Array
from .photo_figures import bare, overlay
from .pool_records import PoolRecord, record_context_pools, size_distributions
from .subjects import Choice, Drawing, NothingToShow, Subject, run_once

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pool_panels(record: PoolRecord) -> list[Panel]:
    """Weights, sizes in cells, and what the marked token pools."""
    logs = None if record.weights is None else np.log10(record.weights.clip(1e-12))
    maps = (('log10 of the weights w', logs), ('sizes sigma, cells', record.sigma),
            ('pooled by the marked token', record.share))
    return [Panel(title, values, record.cell) for title, values in maps if values is not None]


def draw_context_pool(record: PoolRecord, image: Array, *, every: int | None = None) -> Figure:
    """The image with circles of radius sigma around some tokens, and the maps beside it.

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
        axes.set_title(panel.title, fontsize=8)
        figure.colorbar(shown, ax=axes, fraction=0.046, pad=0.03).ax.tick_params(labelsize=6)
    figure.suptitle(record.name, fontsize=9)
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


def draw_sizes(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """The sizes that each layer predicts for an image (the paper's Figure 4).

    Raises:
        ValueError: for a model whose ContextPools predict no sizes, or that has none.
    """
    with record_context_pools(subjects[0].model) as records:
        run_once(subjects[0])
    rows = size_distributions(records)
    if not rows:
        raise NothingToShow("figure='sizes': the model has no ContextPool that predicts sizes")
    figure = draw_size_distributions(rows, choice.width)
    figure.suptitle(fit(subjects[0].source, figure.get_figwidth(), TITLE), fontsize=TITLE)
    return Drawing(figure, {key: np.array([row[key] for row in rows]) for key in rows[0]})


def draw_pools(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """The weights and sizes that each ContextPool predicts, on the photo, layer by layer (the
    paper's Figure 3).

    Raises:
        ValueError: for a model whose ContextPools predict neither, or that has none.
    """
    subject = subjects[0]
    with record_context_pools(subject.model) as records:
        run_once(subject)
    panels: list[Drawable] = [bare(subject)]
    arrays: dict[str, Array] = {}
    for number, record in enumerate(records):
        for kind, unit, values in (('weights', 'weight, mean 1', record.weights),
                                   ('sizes', 'sigma, cells', record.sigma)):
            if values is not None:
                panels.append(overlay(subject, f'{record.name}: {kind}', values, unit=unit))
                arrays[f'{kind}_{number}'] = values
    if not arrays:
        raise NothingToShow("figure='pools': the model has no ContextPool that predicts weights "
                            'or sizes')
    title = f'What ContextPool predicts\n{subject.source}'
    return Drawing(draw_panels(panels, title=title, width=choice.width), arrays)
