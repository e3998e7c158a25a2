"""Whole-attention forms of iRPE that build no (Lq, Lk) tensor."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
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
    batch, heads, _, dims = q.shape
    prefix = encoding.num_prefix_tokens
    layout = _layout(query, key, prefix)
    with torch.autocast(q.device.type, enabled=False):
        q32, k32, v32 = _in_float32(q, k, v)
        terms = _bias_terms if encoding.mode == 'bias' else _contextual_terms
        sides, tables = terms(encoding, query, key, layout, q32)
        keys, values = (_prefix_last(x, prefix, layout).flatten(0, 1).contiguous()
                        for x in (k32, v32))
        padding = None
        if key_padding_mask is not None:
            padding = _prefix_last(key_padding_mask[:, None, :, None], prefix, layout)[..., 0]
            padding = padding.expand(-1, heads, -1).reshape(batch * heads, -1)
        cells = q32[:, :, prefix:].reshape(batch * heads, -1, dims).contiguous()
        out = chunked_attention(cells, keys, values, sides, padding=padding, **tables)
        out = out.view(batch, heads, -1, dims)
        if prefix:
            first = _prefix_queries(q32[:, :, :prefix], k32, v32, tables, key_padding_mask)
            out = torch.cat([first, out], 2)
    return out.to(v.dtype)


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


def _in_float32(*tensors: Tensor) -> list[Tensor]:
    """Half-precision tensors as float32: buffers are small, and sums over the keys stay exact."""
    return [x.float() if x.dtype in (torch.float16, torch.bfloat16) else x for x in tensors]


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


def _layout(query: Grid, key: Grid, prefix: int) -> Layout:
    return Layout(query.height, query.width, key.height, key.width, -(-prefix // key.width),
                  key.num_cells + prefix)


def _prefix_last(x: Tensor, prefix: int, layout: Layout) -> Tensor:
    """Keys (B, heads, Lk, n) with the prefix behind the grid, filled up to whole rows."""
    if not prefix:
        return x
    fill = layout.extra_rows * layout.key_width - prefix
    return F.pad(torch.cat([x[:, :, prefix:], x[:, :, :prefix]], 2), (0, 0, 0, fill))


def _prefix_queries(q: Tensor, k: Tensor, v: Tensor, tables: dict[str, Tensor],
                    key_padding_mask: Tensor | None) -> Tensor:
    """Attention of the prefix tokens: every key is in their bucket, the last of the tables.

    A table on keys or a bias adds the same to all logits of a query, which softmax ignores.
    """
    logits = q @ k.transpose(-2, -1)
    if 'table_q' in tables:
        logits = logits + (k @ tables['table_q'][..., -1:]).transpose(-2, -1)
    if key_padding_mask is not None:
        logits = logits.masked_fill(key_padding_mask[:, None, None], float('-inf'))
    out = logits.softmax(-1) @ v
    return out + tables['table_v'][:, -1:] if 'table_v' in tables else out
