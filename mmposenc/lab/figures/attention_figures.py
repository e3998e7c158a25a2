"""Whole attention matrices, and what encodings add around reference cells."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .figures import Panel, draw_panels, weight_limits
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
    terms_of,
)
from .tiles import tile_axes, tile_sheet


def draw_matrix(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """The attention weights of all queries and keys of one layer (CPVT, Fig. 5 and 6).

    Several models side by side; of one alone also the same weights with its encodings left out, if
    they can be.
    Prefix tokens come first, behind red lines; without them rows sum to less than 1.

    Raises:
        ValueError: for a block or head that a model does not have.
    """
    found = [(subject.source, attention_of(subject, choice.block, choice.place))
             for subject in subjects]
    if len(subjects) == 1 and can_leave_out(subjects[0].model):
        with without_encodings(subjects[0].model):
            found.append(('same weights, encodings left out',
                          attention_of(subjects[0], choice.block, choice.place)))
    panels, arrays = [], {}
    for number, (source, record) in enumerate(found):
        assert record.all_weights is not None
        skipped = 0 if choice.prefix else record.num_prefix_tokens
        matrix = of_head(record.all_weights, choice.head)[skipped:, skipped:]
        arrays[f'weights_{number}'] = matrix
        panels.append(Panel(
            f'{source}\n{record.name}', matrix, unit='attention weight',
            ylabel=_token_axis('query', record, record.hw_shape),
            xlabel=_token_axis('key', record, record.key_shape), limits=weight_limits(matrix),
            prefix=record.num_prefix_tokens - skipped))
    title = f'Attention weights, {head_text(record.all_weights, choice.head)}'
    return Drawing(draw_panels(panels, columns=3, title=title, cell_inches=3.6,
                               width=choice.width), arrays)


def draw_attention(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """The attention of reference cells, one tile each (CPVT's first version, Fig. 4 and 5).

    Attention to prefix tokens is not shown, so tiles sum to less than 1 where there are any.

    Raises:
        ValueError: for a block or head that is not there.
    """
    record = attention_of(subjects[0], choice.block, choice.place)
    assert record.all_weights is not None
    return _tiles(subjects[0], record, record.all_weights, choice, 14, 'Attention',
                  unit='attention weight')


def draw_references(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """What the encoding adds to the logits of reference cells, one tile each (iRPE, Fig. 5).

    Raises:
        ValueError: for a block or head that is not there, or an encoding that adds nothing to the
            logits.
    """
    record = attention_of(subjects[0], choice.block, choice.place)
    return _tiles(subjects[0], record, terms_of(record, choice.block), choice, 5,
                  'What the encoding adds', unit='added to the logit (before the softmax)',
                  diverging=True)


def _tiles(subject: Subject, record: AttentionRecord, by_head: Array, choice: Choice, usual: int,
           what: str, **options: Any) -> Drawing:
    """Rows of a matrix as tiles on the keys' grid."""
    count = usual if choice.references is None else choice.references
    cells = reference_cells(record.hw_shape, count)
    maps = reference_maps(of_head(by_head, choice.head), record, cells)
    panel = Panel(f'{record.name}, {head_text(by_head, choice.head)}', tile_sheet(maps),
                  **options, **tile_axes(cells, record.key_shape))
    title = f'{what} for {len(cells)} x {len(cells[0])} reference cells'
    return Drawing(draw_panels([panel], cell_inches=5.0, width=choice.width,
                               title=f'{title}\n{subject.source}{window_text(record)}'),
                   dict(maps=maps, cells=np.array(cells)))


def reference_maps(matrix: Array, record: AttentionRecord, cells: list[list[tuple[int, int]]]
                   ) -> Array:
    """(R, C, Hk, Wk): the keys' grid of every reference cell."""
    prefix, width = record.num_prefix_tokens, record.hw_shape[1]
    found: Array = np.array([[matrix[prefix + row * width + col, prefix:].reshape(record.key_shape)
                              for row, col in line] for line in cells])
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
