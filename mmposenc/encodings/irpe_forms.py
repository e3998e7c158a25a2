"""Whole-attention forms of iRPE that build no (Lq, Lk) tensor."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..functional.chunked import chunked_attention
from ..functional.chunked_terms import KeySide, Layout, OffsetSide, QuerySide, Sides
from ..functional.grids import Grid
from ..functional.row_patterns import row_patterns

if TYPE_CHECKING:
    from .irpe import IRPE


def attend_chunked(encoding: IRPE, q: Tensor, k: Tensor, v: Tensor, query: Grid, key: Grid,
                   key_padding_mask: Tensor | None) -> Tensor:
    """Attention a few query rows at a time (:mod:`mmposenc.functional.chunked`).

    Args and returns as :meth:`RelativeEncoding.attend`.
    """
    heads = q.shape[1]
    layout = Layout(query.height, query.width, key.height, key.width, encoding.num_prefix_tokens)
    # Half precision in float32: buffers are small, and sums over the keys stay exact.
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    with torch.autocast(q.device.type, enabled=False):
        rows = [x.to(dtype).flatten(0, 1).contiguous() for x in (q, k, v)]
        terms = _bias_terms if encoding.mode == 'bias' else _contextual_terms
        sides, tables = terms(encoding, query, key, layout, rows[0])
        padding = None
        if key_padding_mask is not None:
            padding = key_padding_mask.repeat_interleave(heads, 0)
        out = chunked_attention(rows[0], rows[1], rows[2], sides, padding=padding, **tables)
    return out.view(q.shape).to(v.dtype)


def _contextual_terms(encoding: IRPE, query: Grid, key: Grid, layout: Layout, like: Tensor
                      ) -> tuple[Sides, dict[str, Tensor]]:
    """Tables of contextual mode, named as :func:`chunked_attention` takes them."""
    tables = {f'table_{side}': _joined_table(encoding, side).to(like.dtype)
              for side in encoding.rpe_on}
    if 'table_q' in tables:
        tables['table_q'] = tables['table_q'] * encoding.head_dims ** -0.5
    on_keys = on_queries = None
    if set(encoding.rpe_on) & set('kv'):
        on_keys = KeySide(row_patterns(encoding.method, query, key, encoding.params, like.dtype,
                                       like.device), layout)
    if 'q' in encoding.rpe_on:
        on_queries = QuerySide(row_patterns(encoding.method, key, query, encoding.params,
                                            like.dtype, like.device), layout)
    return Sides(layout, on_keys, on_queries), tables


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
