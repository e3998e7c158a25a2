"""Whole attention matrices, and what encodings add around reference cells."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .figures import Panel, draw_panels, tile_sheet, tile_ticks
from .maps import Array
from .muting import can_leave_out, without_encodings
from .recording import AttentionRecord
from .subjects import (
    Choice,
    Drawing,
    Subject,
    attention_of,
    head_text,
    of_head,
    reference_cells,
)


def draw_matrix(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """The attention weights of all queries and keys of one layer (CPVT, Fig. 5 and 6).

    Several models side by side; of one alone also the same weights with its encodings left out, if
    they can be.
    Prefix tokens come first, behind red lines; without them rows sum to less than 1.

    Raises:
        ValueError: for a block or head that a model does not have.
    """
    at = choice.places[0] if choice.places else (0.5, 0.5)
    found = [(subject.source, attention_of(subject, choice.block, at)) for subject in subjects]
    if len(subjects) == 1 and can_leave_out(subjects[0].model):
        with without_encodings(subjects[0].model):
            found.append(('same weights, encodings left out',
                          attention_of(subjects[0], choice.block, at)))
    panels, arrays = [], {}
    for number, (source, record) in enumerate(found):
        assert record.all_weights is not None
        skipped = 0 if choice.prefix else record.num_prefix_tokens
        matrix = of_head(record.all_weights, choice.head)[skipped:, skipped:]
        arrays[f'weights_{number}'] = matrix
        # A few keys, the class token first of all, may take most: the rest stays visible.
        most = max(float(np.quantile(matrix, 0.995)), 1e-12)
        panels.append(Panel(
            f'{source}\n{record.name}', matrix, unit='attention weight',
            ylabel=_token_axis('query', record, record.hw_shape),
            xlabel=_token_axis('key', record, record.key_shape), limits=(0.0, most),
            prefix=record.num_prefix_tokens - skipped))
    title = f'Attention weights, {head_text(record.all_weights, choice.head)}'
    return Drawing(draw_panels(panels, columns=3, title=title, cell_inches=3.6), arrays)


def draw_references(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """What the encoding adds to the logits of reference cells, one tile each (iRPE, Fig. 5).

    Raises:
        ValueError: for a block or head that is not there, or an encoding that adds nothing to the
            logits.
    """
    subject = subjects[0]
    at = choice.places[0] if choice.places else (0.5, 0.5)
    record = attention_of(subject, choice.block, at)
    if record.all_terms is None:
        raise ValueError(f'block={choice.block} ({record.name}) has no relative encoding that adds '
                         f'to the logits: this figure has nothing to show')
    cells = reference_cells(record.hw_shape, 5 if choice.references is None else choice.references)
    maps = reference_maps(of_head(record.all_terms, choice.head), record, cells)
    panel = Panel(f'{record.name}, {head_text(record.all_terms, choice.head)}', tile_sheet(maps),
                  diverging=True, unit='added to the logit (before the softmax)',
                  **tile_axes(cells, record.key_shape))
    title = f'What the encoding adds for {len(cells)} x {len(cells[0])} reference cells'
    return Drawing(draw_panels([panel], cell_inches=5.0,
                               title=f'{title}\n{subject.source}{window_text(record)}'),
                   dict(maps=maps, cells=np.array(cells)))


def reference_maps(matrix: Array, record: AttentionRecord, cells: list[list[tuple[int, int]]]
                   ) -> Array:
    """(R, C, Hk, Wk): the keys' grid of every reference cell."""
    prefix, width = record.num_prefix_tokens, record.hw_shape[1]
    found: Array = np.array([[matrix[prefix + row * width + col, prefix:].reshape(record.key_shape)
                              for row, col in line] for line in cells])
    return found


def tile_axes(cells: list[list[tuple[int, int]]], tile: tuple[int, int]) -> dict[str, Any]:
    """Labels and ticks of a sheet with a tile for each reference cell."""
    references = [line[0][0] for line in cells], [cell[1] for cell in cells[0]]
    found: dict[str, Any] = {}
    for letter, axis, places, side in zip('yx', ('row', 'column'), references, tile, strict=True):
        found[f'{letter}label'] = f'{axis} of the reference cell; a tile holds {side} key {axis}s'
        found[f'{letter}ticks'] = tile_ticks(places, side)
    return found


def window_text(record: AttentionRecord) -> str:
    """Which window, where there are any."""
    return '' if record.window is None else (
        f', window in row {record.window[0]}, column {record.window[1]}')


def _token_axis(kind: str, record: AttentionRecord, shape: tuple[int, int]) -> str:
    grid = f'{shape[0]} x {shape[1]}'
    if record.window is not None:
        grid += f'{window_text(record)}'
    elif shape != record.hw_shape:
        grid += f' reduced from {record.hw_shape[0]} x {record.hw_shape[1]}'
    return f'{kind} token, row by row of {grid}'
