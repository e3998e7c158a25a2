"""Whole attention matrices, and what encodings add around reference cells and by offset."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from mmposenc.encodings import RotaryEmbedding
from mmposenc.encodings.base import TokenEncoding
from mmposenc.encodings.matrix_rotary import MatrixRotary
from mmposenc.functional.grids import Grid, grid_offsets

from .maps import Array
from .panels import Panel, draw_panels, tile_axes, tile_sheet, weight_limits
from .recording import AttentionRecord, is_attention
from .subjects import (
    Choice,
    Drawing,
    NothingToShow,
    Subject,
    encoding_in_words,
    head_names,
    head_text,
    of_head,
    place_in_words,
    reference_cells,
    terms_of,
)


def can_leave_out(model: nn.Module) -> bool:
    """Whether there are encodings, and the model runs without them: all keep the grid."""
    tokens = [module for module in model.modules() if isinstance(module, TokenEncoding)]
    relative = any(is_attention(module) and module.rel_pos_encoding is not None
                   for module in model.modules())
    return (bool(tokens) or relative) and all(module.keeps_grid for module in tokens)


@contextmanager
def without_encodings(model: nn.Module) -> Iterator[None]:
    """Leave out every token encoding and every relative encoding of ``model``, same weights.

    It is not the model that its authors would have trained without encodings: what was learned
    with them stays.

    Raises:
        ValueError: for an encoding that changes the grid, after which the model would not fit.
    """
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, TokenEncoding):
                if not module.keeps_grid:
                    raise ValueError(f'{name} ({type(module).__name__}) changes the grid, so the '
                                     f'model does not run without it; compare it with a model of '
                                     f'another config')
                # The tokens come out as they went in.
                stack.callback(module.register_forward_hook(lambda _, args, out: args[0]).remove)
            elif is_attention(module) and module.rel_pos_encoding is not None:
                stack.callback(setattr, module, 'rel_pos_encoding', module.rel_pos_encoding)
                module.rel_pos_encoding = None
        yield


def draw_matrix(subject: Subject, choice: Choice) -> Drawing:
    """The attention weights of all queries and keys of one layer (CPVT, Fig. 5 and 6).

    Several models side by side; for one model also the same weights without its encodings, if that
    is possible.
    Prefix tokens come first, separated by red lines; without them rows sum to less than 1.

    Raises:
        ValueError: for a block or head that a model does not have.
    """
    found = [(each.source, each.attention(choice.block, choice.place))
             for each in (subject, *choice.against)]
    if not choice.against and can_leave_out(subject.model):
        with without_encodings(subject.model):
            found.append(('same weights, encodings left out',
                          subject.attention(choice.block, choice.place)))
    panels, arrays = [], {}
    for number, (source, record) in enumerate(found):
        assert record.all_weights is not None
        skipped = 0 if choice.prefix else record.num_prefix_tokens
        matrix = of_head(record.all_weights, choice.head)[skipped:, skipped:]
        arrays[f'weights_{number}'] = matrix
        panels.append(Panel(
            f'{source}\n{place_in_words(record.name)}', matrix, unit='attention weight',
            ylabel=_token_axis('query', record, record.hw_shape),
            xlabel=_token_axis('key', record, record.key_shape), limits=weight_limits(matrix),
            prefix=record.num_prefix_tokens - skipped))
    title = f'Attention weights, {head_text(record.all_weights, choice.head)}'
    return Drawing(draw_panels(panels, columns=3, title=title, cell_inches=3.6,
                               width=choice.width), arrays)


def draw_attention(subject: Subject, choice: Choice) -> Drawing:
    """The attention of reference cells, one tile each (CPVT's first version, Fig. 4 and 5).

    Attention to prefix tokens is not shown, so tiles sum to less than 1 where there are any.

    Raises:
        ValueError: for a block or head that is not there.
    """
    record = subject.attention(choice.block, choice.place)
    assert record.all_weights is not None
    return _tiles(subject, record, record.all_weights, choice, 14, 'Attention',
                  unit='attention weight')


def draw_references(subject: Subject, choice: Choice) -> Drawing:
    """What the encoding adds to the logits of reference cells, one tile each (iRPE, Fig. 5).

    Raises:
        ValueError: for a block or head that is not there, or an encoding that adds nothing to the
            logits.
    """
    record = subject.attention(choice.block, choice.place)
    return _tiles(subject, record, terms_of(record, choice.block), choice, 5,
                  'What the encoding adds', unit='added to the logit (before the softmax)',
                  diverging=True)


def _tiles(subject: Subject, record: AttentionRecord, by_head: Array, choice: Choice, usual: int,
           what: str, **options: Any) -> Drawing:
    """Rows of a matrix as tiles on the keys' grid."""
    count = usual if choice.references is None else choice.references
    cells = reference_cells(record.hw_shape, count)
    maps = reference_maps(of_head(by_head, choice.head), record, cells)
    name = f'{place_in_words(record.name)}, {head_text(by_head, choice.head)}'
    panel = Panel(name, tile_sheet(maps), **options, **tile_axes(cells, record.key_shape))
    return subject.drawing([panel], f'{what} for {len(cells)} x {len(cells[0])} reference cells',
                           choice, dict(maps=maps, cells=np.array(cells)),
                           where=record.window_text, cell_inches=5.0)


def reference_maps(matrix: Array, record: AttentionRecord, cells: list[list[tuple[int, int]]]
                   ) -> Array:
    """(R, C, Hk, Wk): the keys' grid of every reference cell."""
    prefix, width = record.num_prefix_tokens, record.hw_shape[1]
    found: Array = np.array([[matrix[prefix + row * width + col, prefix:].reshape(record.key_shape)
                              for row, col in line] for line in cells])
    return found


def _token_axis(kind: str, record: AttentionRecord, shape: tuple[int, int]) -> str:
    grid = f'{shape[0]} x {shape[1]}'
    if record.window is not None:
        grid += record.window_text
    elif shape != record.hw_shape:
        grid += f' reduced from {record.hw_shape[0]} x {record.hw_shape[1]}'
    return f'{kind} token, row by row of {grid}'


def draw_bias(subject: Subject, choice: Choice) -> Drawing:
    """What an encoding adds to the logits by the offset of the key from the query, a map a head
    (Swin, ICCV 2021, Eq. 4; BEiT; SwinV2; BoTNet).

    Of an encoding that reads queries or keys the mean over all pairs with that offset, for this
    image. A head's mean is taken off, which a softmax over cells does not see.

    Raises:
        ValueError: for a block or head that is not there, or an encoding that adds nothing to the
            logits.
    """
    record = subject.attention(choice.block, choice.place)
    prefix = record.num_prefix_tokens
    cells = terms_of(record, choice.block)[:, prefix:, prefix:]
    rows, columns, table = by_offset(cells, Grid(*record.hw_shape), record.key_grid)
    shown = table - cells.mean((1, 2), dtype=np.float64)[:, None, None]
    panels = offset_panels(rows, columns, shown, choice.head, diverging=True,
                           unit="added, less the head's mean")
    encoding = subject.encoding(record)
    assert encoding is not None  # it has added something
    read = any(term.reads_queries or term.reads_keys for term in
               encoding.terms(Grid(*record.hw_shape), record.key_grid))
    what = (f'mean over the queries of this image{record.window_text}' if read
            else 'the same for all queries')
    title = (f'Added by {encoding_in_words(type(encoding).__name__)} by offset, '
             f'{place_in_words(record.name)}, {what}')
    return subject.drawing(panels, title, choice, dict(bias=table, rows=rows, columns=columns),
                           same_scale=True)


def draw_rotary(subject: Subject, choice: Choice) -> Drawing:
    """What turning queries and keys leaves of their product, by the offset of the key from the
    query: the mean over all planes of the cosine of the angle between them (RoFormer, Su et al.,
    2021, Sec. 3.4.3; RoPE-ViT, Heo et al., ECCV 2024).

    It is the product of a query and a key that are alike in every plane; 1 at no offset. Heads
    whose frequencies are equal have one map.

    Raises:
        ValueError: for a layer without rotary positions.
    """
    record = subject.attention(choice.block, choice.place)
    rotary = subject.find_encoding(record, (RotaryEmbedding, MatrixRotary))
    if rotary is None:
        raise NothingToShow(f'block={choice.block} ({record.name}) has no RotaryEmbedding: '
                            f'this figure has nothing to show')
    rows, columns, table = by_offset(rotary_products(rotary, record), Grid(*record.hw_shape),
                                     record.key_grid)
    if np.allclose(table, table[:1], atol=1e-6):
        table = table[:1]
    table = table.clip(-1.0, 1.0)  # rounding
    panels = offset_panels(rows, columns, table, choice.head, diverging=True,
                           unit='cosine, mean of planes', limits=(-1.0, 1.0))
    title = (f'Rotary positions in {place_in_words(record.name)}: similarity by offset'
             f'{record.window_text}')
    return subject.drawing(panels, title, choice,
                           dict(similarity=table, rows=rows, columns=columns), same_scale=True)


@torch.no_grad()
def rotary_products(rotary: RotaryEmbedding | MatrixRotary, record: AttentionRecord) -> Array:
    """(heads, L, Lk): products of one vector, of length 1, at every query with itself at every key.

    All channels of it are equal, so that each plane has the same share.
    """
    prefix, key = rotary.num_prefix_tokens, record.key_grid
    some = next(rotary.parameters(), torch.zeros(()))
    q, k = (some.new_full((1, rotary.num_heads, prefix + cells, rotary.head_dims),
                          rotary.head_dims ** -0.5)
            for cells in (record.hw_shape[0] * record.hw_shape[1], key.num_cells))
    q, k = rotary.rotate(q, k, record.hw_shape, key)
    products: Array = (q @ k.transpose(-2, -1))[0, :, prefix:, prefix:].float().cpu().numpy()
    return products


def by_offset(pairs: Array, query: Grid, key: Grid) -> tuple[Array, Array, Array]:
    """The mean over all pairs of cells with the same offset.

    Args:
        pairs: (heads, L, Lk).
        query, key: the grids, the key's in cells of the query's.

    Returns:
        Offsets (Dr,) of rows and (Dc,) of columns, key minus query, ascending, and (heads, Dr, Dc);
        NaN for offsets that no pair has.
    """
    rows, row_index, columns, col_index = (each.numpy() for each in grid_offsets(query, key))
    place = (row_index[:, None, :, None] * len(columns) + col_index[None, :, None, :]).ravel()
    size = len(rows) * len(columns)
    count = np.bincount(place, minlength=size)
    with np.errstate(invalid='ignore'):
        table = np.stack([np.bincount(place, each.ravel(), size) / count for each in pairs])
    # Offsets of the project are query minus key; a map around the query has the opposite ones.
    table = table.reshape(len(pairs), len(rows), len(columns))[:, ::-1, ::-1]
    return 0.0 - rows[::-1], 0.0 - columns[::-1], table


def offset_panels(rows: Array, columns: Array, table: Array, head: int | None, **options: Any
                  ) -> list[Panel]:
    """A map of each head, or of one, around the query."""
    if head is None:
        names, maps = head_names(table), list(table)
    else:
        names, maps = [head_text(table, head)], [of_head(table, head)]
    middle = float(np.abs(rows).argmin()), float(np.abs(columns).argmin())
    return [Panel(name, values, middle, ylabel='key - query, rows', xlabel='key - query, columns',
                  yticks=offset_ticks(rows), xticks=offset_ticks(columns), **options)
            for name, values in zip(names, maps, strict=True)]


def offset_ticks(offsets: Array) -> dict[float, str]:
    """About five ticks at places of ascending offsets, the least one in size among them."""
    middle, step = int(np.abs(offsets).argmin()), max(1, -(-len(offsets) // 6))
    return {float(place): f'{offsets[place] + 0:g}'  # -0 becomes 0
            for place in range(middle % step, len(offsets), step)}
