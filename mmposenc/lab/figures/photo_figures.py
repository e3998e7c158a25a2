"""Attention and attention rollout on the photo, for any number of points."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .attention_figures import window_text
from .figures import Drawable, draw_panels, weight_limits
from .layouts import check_place
from .maps import Array
from .photo import Box, PhotoPanel, check_whole, on_photo, query_box
from .rollout import record_rollout
from .subjects import (
    Choice,
    Drawing,
    NothingToShow,
    Subject,
    attention_of,
    head_text,
    of_head,
    run_once,
)


def draw_overlay(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """The attention of some points of the photo in one layer, on the photo: a panel a point, of the
    first prefix token also (ViT, Dosovitskiy et al., ICLR 2021, Fig. 6; DINO, Caron et al., ICCV
    2021, Fig. 1).

    In windows the window that holds the point is outlined.

    Raises:
        ValueError: for a block, head or place that is not there, or an image that is no whole
            number of cells.
    """
    subject = subjects[0]
    places = list(choice.places) or [(0.5, 0.5)]
    records = [attention_of(subject, choice.block, at) for at in places]
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
        panels.append(overlay(subject, f'point {number}{window_text(record)}', values, covers, at,
                              query_box(record), windowed=record.window is not None))
        arrays[f'point_{number}'] = values
    title = (f'Attention in {records[0].name}, {head_text(heads, choice.head)}\n{subject.source}')
    return Drawing(draw_panels(panels, title=title, width=choice.width), arrays)


def draw_rollout(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """Attention rollout on the photo (Abnar and Zuidema, ACL 2020): what the tokens of the last
    layer are made of, by :func:`.rollout.rollout_step`.

    A panel for the first prefix token, or where there is none for the mean of all cells, and one a
    point that is given. What is taken of prefix tokens is not shown, so maps sum to less than 1
    where there are any.

    Raises:
        ValueError: for layers that have no product (windows, reduced keys, stages), or an image
            that is no whole number of cells.
    """
    subject = subjects[0]
    for at in choice.places:
        check_place(at)
    with record_rollout(subject.model) as found:
        run_once(subject)
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
    title = f'Attention rollout, {len(found.names)} layers\n{subject.source}'
    return Drawing(draw_panels(panels, title=title, width=choice.width), arrays)


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
