"""What relative encodings have for each offset of two cells."""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mmposenc.encodings import RotaryEmbedding
from mmposenc.functional.grids import Grid, grid_offsets

from .attention_figures import window_text
from .figures import Panel, draw_panels
from .maps import Array
from .recording import AttentionRecord
from .subjects import (
    Choice,
    Drawing,
    NothingToShow,
    Subject,
    attention_of,
    encoding_of,
    find_encoding,
    head_names,
    head_text,
    of_head,
    terms_of,
)

AXES = dict(ylabel='key - query, rows', xlabel='key - query, columns')


def draw_bias(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """What an encoding adds to the logits by the offset of the key from the query, a map a head
    (Swin, ICCV 2021, Eq. 4; BEiT; SwinV2; BoTNet).

    Of an encoding that reads queries or keys the mean over all pairs with that offset, for this
    image. A head's mean is taken off, which a softmax over cells does not see.

    Raises:
        ValueError: for a block or head that is not there, or an encoding that adds nothing to the
            logits.
    """
    subject = subjects[0]
    record = attention_of(subject, choice.block, choice.place)
    prefix = record.num_prefix_tokens
    cells = terms_of(record, choice.block)[:, prefix:, prefix:]
    rows, columns, table = by_offset(cells, Grid(*record.hw_shape), record.key_grid)
    shown = table - cells.mean((1, 2), dtype=np.float64)[:, None, None]
    panels = offset_panels(rows, columns, shown, choice.head, diverging=True,
                           unit="added, less the head's mean")
    encoding = encoding_of(subject, record)
    assert encoding is not None  # it has added something
    read = any(term.reads_queries or term.reads_keys for term in
               encoding.terms(Grid(*record.hw_shape), record.key_grid))
    what = (f'mean over the queries of this image{window_text(record)}' if read
            else 'the same for all queries')
    what = what if shown.any() else 'zero for all pairs of cells'
    title = (f'Added by {record.name} ({type(encoding).__name__}) by offset, '
             f'{what}\n{subject.source}')
    return Drawing(draw_panels(panels, title=title, same_scale=True, width=choice.width),
                   dict(bias=table, rows=rows, columns=columns))


def draw_rotary(subjects: Sequence[Subject], choice: Choice) -> Drawing:
    """What turning queries and keys leaves of their product, by the offset of the key from the
    query: the mean over all planes of the cosine of the angle between them (RoFormer, Su et al.,
    2021, Sec. 3.4.3; RoPE-ViT, Heo et al., ECCV 2024).

    It is the product of a query and a key that are alike in every plane; 1 at no offset. Heads
    whose frequencies are equal have one map.

    Raises:
        ValueError: for a layer without rotary positions.
    """
    subject = subjects[0]
    record = attention_of(subject, choice.block, choice.place)
    rotary = find_encoding(subject, record, RotaryEmbedding)
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
    title = (f'Rotary positions of {record.name}: similarity by offset{window_text(record)}\n'
             f'{subject.source}')
    return Drawing(draw_panels(panels, title=title, same_scale=True, width=choice.width),
                   dict(similarity=table, rows=rows, columns=columns))


@torch.no_grad()
def rotary_products(rotary: RotaryEmbedding, record: AttentionRecord) -> Array:
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


def offset_panels(rows: Array, columns: Array, table: Array, head: int | None, **options: object
                  ) -> list[Panel]:
    """A map of each head, or of one, around the query."""
    if head is None:
        names, maps = head_names(table), list(table)
    else:
        names, maps = [head_text(table, head)], [of_head(table, head)]
    middle = float(np.abs(rows).argmin()), float(np.abs(columns).argmin())
    axes = dict(AXES, yticks=offset_ticks(rows), xticks=offset_ticks(columns))
    return [Panel(name, values, middle, **axes, **options)  # type: ignore[arg-type]
            for name, values in zip(names, maps, strict=True)]


def offset_ticks(offsets: Array) -> dict[float, str]:
    """About five ticks at places of ascending offsets, the least one in size among them."""
    middle, step = int(np.abs(offsets).argmin()), max(1, -(-len(offsets) // 6))
    return {float(place): f'{offsets[place] + 0:g}'  # -0 becomes 0
            for place in range(middle % step, len(offsets), step)}
