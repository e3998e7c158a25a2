"""Logit and value terms that depend on the offset of query and key, without a tensor
(Lq, Lk, head_dims) and, for terms that are a sum over the axes, without an index (Lq, Lk)."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .grids import Grid
from .lookup import bucket_sums, gather_buckets
from .offset_index import sequence_index


def table_bias(table: Tensor, row_index: Tensor, col_index: Tensor) -> Tensor:
    """Bias of every pair out of a table of offsets, an axis at a time.

    Args:
        table: (heads, rows, cols).
        row_index: (Hq, Hk) row of the table for each pair of grid rows.
        col_index: (Wq, Wk) likewise.

    Returns:
        (heads, Hq * Wq, Hk * Wk). No index of that size is built: columns are picked first, while
        rows are few, then whole runs of Wk are copied.
    """
    (hq, hk), (wq, wk), heads = row_index.shape, col_index.shape, table.shape[0]
    by_col = table.index_select(2, col_index.flatten()).view(heads, -1, wq, wk)
    runs = by_col.transpose(1, 2).reshape(heads, -1, wk)  # (heads, Wq * rows, Wk)
    starts = torch.arange(wq, device=table.device)[:, None] * table.shape[1]
    which = row_index[:, None, :] + starts
    full: Tensor = runs.index_select(1, which.flatten()).view(heads, hq * wq, hk * wk)
    return full


def add_prefix_bias(bias: Tensor, prefix_bias: Tensor | None, num_prefix_tokens: int) -> Tensor:
    """Put prefix tokens in front of a bias (heads, Lq, Lk) of the cells.

    Args:
        prefix_bias: (heads, 3) for prefix to cell, cell to prefix and prefix to prefix; None is 0.

    Returns:
        (1, heads, P + Lq, P + Lk).
    """
    if num_prefix_tokens == 0:
        return bias[None]
    if prefix_bias is None:
        return pad_prefix(bias[None], num_prefix_tokens)
    heads, len_q, len_k = bias.shape
    to_cell, from_cell, between = prefix_bias.to(bias.dtype)[:, :, None, None].unbind(1)
    p = num_prefix_tokens
    top = torch.cat((between.expand(heads, p, p), to_cell.expand(heads, p, len_k)), 2)
    return torch.cat((top, torch.cat((from_cell.expand(heads, len_q, p), bias), 2)), 1)[None]


def pad_prefix(term: Tensor, num_prefix_tokens: int) -> Tensor:
    """A term (..., Lq, Lk) of the cells with zeros for every pair that has a prefix token."""
    p = num_prefix_tokens
    return F.pad(term, (p, 0, p, 0)) if p else term


def lookup_logits(q: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """q_i . table[ids[i, j]] by way of the product with the whole table, of which ids picks.

    Args:
        q: (B, heads, Lq, d).
        table: (n, d), or (heads, n, d) with vectors a head.
        ids: (Lq, Lk) long.

    Returns:
        (B, heads, Lq, Lk).
    """
    return gather_buckets(q @ table.transpose(-2, -1), ids)


def sequence_logits(q: Tensor, table: Tensor, query: Grid, key: Grid, num_prefix_tokens: int
                    ) -> Tensor:
    """q_i . table[j - i + L - 1] for places i, j of the flattened grid behind its prefix tokens.

    Args:
        q: (B, heads, L, d), L = num_prefix_tokens + query cells.
        table: (2 L - 1, d) or (heads, 2 L - 1, d).

    Returns:
        (B, heads, L, Lk). Keys on the query grid need no index, see :func:`skew`.
    """
    lookup = q @ table.transpose(-2, -1)
    if key == query:
        return skew(lookup)
    index = sequence_index(query, key, num_prefix_tokens, q.shape[2] - 1, q.device)
    return gather_buckets(lookup, index)


def skew(lookup: Tensor) -> Tensor:
    """Turn products by offset (..., L, 2 L - 1) into products by key (..., L, L).

    Row i starts at offset -i, so in memory key 0 of the next row lies 2 L - 2 places on: a view
    with that stride is all it takes, no index and no copy.
    """
    length = lookup.shape[-2]
    if length == 1:
        return lookup
    rows = lookup.flatten(-2).narrow(-1, length - 1, length * (2 * length - 2))
    rows = rows.reshape(*lookup.shape[:-1], 2 * length - 2)
    return rows[..., :length]


def lookup_values(attn: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """sum_j attn_ij table[ids[i, j]] by way of the weights summed for each row of the table.

    Args:
        attn: (B, heads, Lq, Lk).
        table: (n, d) or (heads, n, d).

    Returns:
        (B, heads, Lq, d).
    """
    return bucket_sums(attn, ids, table.shape[-2]) @ table.to(attn.dtype)


def axis_terms(q: Tensor | tuple[Tensor, Tensor], row_table: Tensor, col_table: Tensor,
               row_index: Tensor, col_index: Tensor) -> tuple[Tensor, Tensor]:
    """Products of queries with the vectors of their row and of their column offsets.

    Args:
        q: (B, heads, Hq * Wq, d), cells only; a pair of tensors takes other channels for each axis.
        row_table: (rows, d), or (heads, rows, d) with vectors a head.
        col_table: (cols, d) or (heads, cols, d).
        row_index: (Hq, Hk); col_index: (Wq, Wk).

    Returns:
        (B, heads, Hq, Wq, Hk) and (B, heads, Hq, Wq, Wk). One matrix product for each row (column)
        of queries with the Hk (Wk) vectors it needs: no product is thrown away and none gathered.
    """
    q_row, q_col = q if isinstance(q, tuple) else (q, q)
    hq, wq = row_index.shape[0], col_index.shape[0]
    row_vectors = _pick(row_table, row_index)  # ([heads], Hq, Hk, d)
    col_vectors = _pick(col_table, col_index)
    head = 'h' if row_table.dim() == 3 else ''
    q_row = q_row.reshape(*q_row.shape[:2], hq, wq, -1)
    q_col = q_col.reshape(*q_col.shape[:2], hq, wq, -1)
    rows = torch.einsum(f'bhyxd,{head}ykd->bhyxk', q_row, row_vectors)
    cols = torch.einsum(f'bhyxd,{head}xkd->bhyxk', q_col, col_vectors)
    return rows, cols


def join_axis_terms(rows: Tensor, cols: Tensor) -> Tensor:
    """Sum of a row term (B, heads, Hq, Wq, Hk) and a column term (B, heads, Hq, Wq, Wk) for every
    pair: (B, heads, Hq * Wq, Hk * Wk)."""
    return (rows[..., :, None] + cols[..., None, :]).flatten(4, 5).flatten(2, 3)


def _pick(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table ([heads], n, d) for each pair: ([heads], *index.shape, d)."""
    picked: Tensor = table.index_select(-2, index.flatten())
    return picked.view(*table.shape[:-2], *index.shape, table.shape[-1])
