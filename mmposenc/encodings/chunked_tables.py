"""Whole-attention forms, without an (Lq, Lk) tensor, of tables and biases of clipped offsets."""
from __future__ import annotations

import torch
from torch import Tensor

from ..functional.buckets import BucketParams
from ..functional.chunked import chunked_attention
from ..functional.chunked_terms import KeySide, Layout, OffsetSide, QuerySide, Sides
from ..functional.grids import Grid
from ..functional.head_tables import by_head
from ..functional.row_patterns import row_patterns

#: From this many pairs of query and key on, these forms are the faster ones on a CPU.
_MANY_PAIRS = 300 * 300


def is_worth_chunking(q: Tensor, k: Tensor) -> bool:
    """Whether a form of this module is faster than the definition."""
    return (q.device.type == 'cpu' and not torch.compiler.is_compiling()
            and q.shape[2] * k.shape[2] >= _MANY_PAIRS)


def attend_tables(q: Tensor, k: Tensor, v: Tensor, query: Grid, key: Grid, limit: int, *,
                  num_prefix_tokens: int = 0, key_padding_mask: Tensor | None = None,
                  scale: float = 1.0,
                  with_query: Tensor | None = None, with_key: Tensor | None = None,
                  with_weights: Tensor | None = None) -> Tensor:
    """softmax((q k^T + q_i . A_ij) * scale + k_j . B_ij) (v_j + C_ij), where the vectors of a pair
    are those of its row and column offset, each clipped to ``limit``.

    Args:
        q: (B, heads, P + Lq, d); k, v: (B, heads, P + Lk, d).
        with_query, with_key, with_weights: tables A, B, C ([heads], (2 limit + 1)^2 [+ 1], d) by
            key minus query offset, rows first, or None; with prefix tokens one further vector,
            the last, is that of every pair with one of them.
        key_padding_mask: (B, P + Lk) bool, True = padding.

    Returns:
        (B, heads, P + Lq, d).
    """
    params = BucketParams(1.0, float(limit), 2.0, 'clip')
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    layout = Layout(query.height, query.width, key.height, key.width, num_prefix_tokens)
    on_keys = on_queries = None
    # The chunked form goes by query minus key: what a query reads is reversed, and what a key reads
    # is not, because there the offset starts at the key.
    if with_query is not None or with_weights is not None:
        on_keys = KeySide(row_patterns('product', query, key, params, dtype, q.device), layout)
    if with_key is not None:
        on_queries = QuerySide(row_patterns('product', key, query, params, dtype, q.device), layout)
    tables = {}
    if with_query is not None:
        table = _heads_first(with_query * scale)
        tables['table_k'] = _reverse(table, num_prefix_tokens).transpose(1, 2)
    if with_weights is not None:
        tables['table_v'] = _reverse(_heads_first(with_weights), num_prefix_tokens)
    if with_key is not None:
        tables['table_q'] = _heads_first(with_key).transpose(1, 2)
    return _run(q, k, v, Sides(layout, on_keys, on_queries), key_padding_mask, scale, tables)


def attend_bias(q: Tensor, k: Tensor, v: Tensor, query: Grid, key: Grid, bias: Tensor,
                row_index: Tensor, col_index: Tensor,
                key_padding_mask: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """softmax(q k^T * scale + bias) v with a bias by offset, without prefix tokens.

    Args:
        bias: (heads, Dr, Dc) of the distinct row and column offsets.
        row_index: (Hq, Hk) which of them a pair of rows has; col_index: (Wq, Wk).
    """
    layout = Layout(query.height, query.width, key.height, key.width, 0)
    runs = bias[:, :, col_index].transpose(1, 2).contiguous()  # (heads, Wq, Dr, Wk)
    side = OffsetSide(row_index, bias.shape[1], layout, bias.shape[0])
    return _run(q, k, v, Sides(layout, on_offsets=side), key_padding_mask, scale, {'bias': runs})


def _run(q: Tensor, k: Tensor, v: Tensor, sides: Sides, key_padding_mask: Tensor | None,
         scale: float, tables: dict[str, Tensor]) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        rows, padding = by_head(q, k, v, key_padding_mask)
        tables = {name: table.to(rows[0].dtype) for name, table in tables.items()}
        out = chunked_attention(*rows, sides, padding=padding, scale=scale,
                                **tables)  # type: ignore[arg-type]
    return out.view(q.shape).to(v.dtype)


def _heads_first(table: Tensor) -> Tensor:
    return table[None] if table.dim() == 2 else table


def _reverse(table: Tensor, num_prefix_tokens: int) -> Tensor:
    """(heads, n [+ 1], d) by the opposite offset; the vector of prefix tokens stays last."""
    if not num_prefix_tokens:
        return table.flip(1)
    return torch.cat((table[:, :-1].flip(1), table[:, -1:]), 1)
