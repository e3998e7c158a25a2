"""Whole-attention forms of iRPE, with their own backward, for a CPU."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..functional.chunked import chunked_attention
from ..functional.chunked_terms import KeySide, Layout, OffsetSide, QuerySide, Sides
from ..functional.grid_cache import CACHE
from ..functional.grids import Grid
from ..functional.head_tables import by_head
from ..functional.indexed_attention import PairIndex, indexed_attention, pair_index
from ..functional.row_patterns import row_patterns

if TYPE_CHECKING:
    from .irpe import IRPE


def attend_chunked(encoding: IRPE, q: Tensor, k: Tensor, v: Tensor, query: Grid, key: Grid,
                   key_padding_mask: Tensor | None, scale: float) -> Tensor:
    """Attention a few query rows at a time (:mod:`mmposenc.functional.chunked`).

    Args and returns as :meth:`RelativeEncoding.attend`.
    """
    layout = Layout(query.height, query.width, key.height, key.width, encoding.num_prefix_tokens)
    with torch.autocast(q.device.type, enabled=False):
        rows, padding = by_head(q, k, v, key_padding_mask)
        if encoding.mode == 'bias':
            sides, tables = _bias_terms(encoding, query, key, layout, rows[0])
        else:
            sides = _sides(encoding, query, key, layout, rows[0])
            tables = _scaled_tables(encoding, _joined_table, rows[0].dtype, scale)
        # Tables by rows and by columns are so cheap that memory is what is left to save.
        small = encoding.method == 'cross' and 'v' not in encoding.rpe_on
        out = chunked_attention(*rows, sides, padding=padding, scale=scale, small_training=small,
                                **tables)
    return out.view(q.shape).to(v.dtype)


def attend_indexed(encoding: IRPE, q: Tensor, k: Tensor, v: Tensor, query: Grid, key: Grid,
                   key_padding_mask: Tensor | None, scale: float) -> Tensor:
    """Contextual attention a few heads at a time, by an index of all pairs
    (:mod:`mmposenc.functional.indexed_attention`).

    Args and returns as :meth:`RelativeEncoding.attend`.
    """
    with torch.autocast(q.device.type, enabled=False):
        rows, padding = by_head(q, k, v, key_padding_mask)
        tables = _scaled_tables(encoding, _tables_in_a_row, rows[0].dtype, scale)
        on_keys: tuple[Tensor, ...] = ()
        on_queries: tuple[Tensor, ...] = ()
        if set(encoding.rpe_on) & set('kv'):
            on_keys = _places(encoding, query, key, by_key=False, like=q)
        if 'q' in encoding.rpe_on:
            on_queries = _places(encoding, key, query, by_key=True, like=q)
        out = indexed_attention(*rows, PairIndex(on_keys, on_queries), padding=padding,
                                scale=scale, **tables)
    return out.view(q.shape).to(v.dtype)


def _places(encoding: IRPE, first: Grid, second: Grid, by_key: bool, like: Tensor
            ) -> tuple[Tensor, ...]:
    """Where each pair finds its buckets in the look-up of :func:`_tables_in_a_row`."""
    def make() -> tuple[Tensor, ...]:
        ids = encoding.bucket_ids(first, second, like.device)
        each = encoding.num_buckets + (encoding.num_prefix_tokens > 0)
        return tuple(pair_index(ids_of_axis + axis * each, each * len(ids), by_key)
                     for axis, ids_of_axis in enumerate(ids))

    key = ('places', encoding.method, encoding.params, encoding.num_prefix_tokens, first, second,
           by_key, like.device)
    return CACHE.get(key, make, list)


def _scaled_tables(encoding: IRPE, join: Callable[[IRPE, str], Tensor], dtype: torch.dtype,
                   scale: float) -> dict[str, Tensor]:
    """Tables by the names that the attentions take, made to meet queries as they are."""
    # The release scales keys too where they meet a table.
    factors = {'k': scale, 'q': float(encoding.head_dims ** -0.5), 'v': 1.0}
    tables = {}
    for side in encoding.rpe_on:
        table = join(encoding, side).to(dtype)
        tables[f'table_{side}'] = table if factors[side] == 1.0 else table * factors[side]
    return tables


def _tables_in_a_row(encoding: IRPE, side: str) -> Tensor:
    """Tables of both axes of 'cross' side by side, each with its bucket of prefix tokens."""
    tables = encoding.tables(side)
    return tables[0] if len(tables) == 1 else torch.cat(tables, -2 if side == 'v' else -1)


def _sides(encoding: IRPE, query: Grid, key: Grid, layout: Layout, like: Tensor) -> Sides:
    """Terms of contextual mode."""
    on_keys = on_queries = None
    if set(encoding.rpe_on) & set('kv'):
        on_keys = KeySide(row_patterns(encoding.method, query, key, encoding.params, like.dtype,
                                       like.device), layout)
    if 'q' in encoding.rpe_on:
        on_queries = QuerySide(row_patterns(encoding.method, key, query, encoding.params,
                                            like.dtype, like.device), layout)
    return Sides(layout, on_keys, on_queries)


def _bias_terms(encoding: IRPE, query: Grid, key: Grid, layout: Layout, like: Tensor
                ) -> tuple[Sides, dict[str, Tensor]]:
    """Runs of bias mode: the biases of all offsets, along the key columns."""
    bias, prefix_bias, row_index, col_index = encoding.offset_bias(query, key, like.device)
    runs = bias.to(like.dtype)[:, :, col_index].transpose(1, 2)  # (heads, Wq, offsets, Wk)
    if layout.extra_rows:
        assert prefix_bias is not None
        extra = prefix_bias.to(like.dtype)[:, None, None, None]
        runs = torch.cat([runs, extra.expand(-1, layout.width, layout.extra_rows,
                                             layout.key_width)], 2)
    side = OffsetSide(row_index, bias.shape[1], layout, bias.shape[0])
    return Sides(layout, on_offsets=side), {'bias': runs.contiguous()}


def _joined_table(encoding: IRPE, side: str) -> Tensor:
    """One table for both axes of 'cross': buckets of the rows, of the columns, of prefix tokens."""
    tables = encoding.tables(side)
    if len(tables) == 1:
        return tables[0]
    dim = -2 if side == 'v' else -1
    n = encoding.num_buckets
    parts = [table.narrow(dim, 0, n) for table in tables]
    if encoding.num_prefix_tokens:
        parts.append(sum(table.narrow(dim, n, 1) for table in tables[1:]) +
                     tables[0].narrow(dim, n, 1))
    return torch.cat(parts, dim)
