"""Definitions over all pairs of what terms add, and what their writers start from."""
from __future__ import annotations

import torch
from torch import Tensor

from ..grids import Grid


def gather_buckets(lookup: Tensor, ids: Tensor) -> Tensor:
    """lookup[..., i, ids[i, j]].

    Args:
        lookup: (B, heads, Lq, buckets).
        ids: (Lq, Lk) long.

    Returns:
        (B, heads, Lq, Lk).
    """
    return lookup.gather(-1, ids.expand(*lookup.shape[:2], *ids.shape))


def bucket_sums(weights: Tensor, ids: Tensor, num_buckets: int) -> Tensor:
    """Sum of the weights of each bucket, the adjoint of :func:`gather_buckets`.

    Args:
        weights: (B, heads, Lq, Lk).
        ids: (Lq, Lk) long.

    Returns:
        (B, heads, Lq, num_buckets).
    """
    sums = torch.zeros(*weights.shape[:3], num_buckets, dtype=weights.dtype, device=weights.device)
    return sums.scatter_add(-1, ids.expand(*weights.shape[:2], *ids.shape), weights)


def spread_offsets(table: Tensor, row_index: Tensor, col_index: Tensor) -> Tensor:
    """Numbers of every pair out of a table of offsets, an axis at a time.

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


def offset_runs(table: Tensor, query: Grid, key: Grid) -> Tensor:
    """Numbers of every pair of columns at each row offset, as slices of the table.

    Args:
        table: (heads, Dr, Dc) by query minus key, strides whole.

    Returns:
        (heads, Wq, Dr, Wk), row offsets by key minus query, ascending.
    """
    stride, step = int(query.stride_w), int(key.stride_w)
    # By key minus query, the numbers of the last query column begin at the first offset, and those
    # of each column before it a stride further up.
    lines = table.flip(1, 2).unfold(2, step * (key.width - 1) + 1, stride)
    return lines[..., ::step].flip(2).transpose(1, 2).contiguous()


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


def axis_products(by_row: Tensor, by_col: Tensor, rows: Tensor, cols: Tensor
                  ) -> tuple[Tensor, Tensor]:
    """Products of queries with the vectors of their row and of their column offsets.

    Args:
        by_row, by_col: (B, heads, Hq * Wq, d) what meets the rows and the columns.
        rows: ([heads], Hq, Hk, d); cols: ([heads], Wq, Wk, d).

    Returns:
        (B, heads, Hq, Wq, Hk) and (B, heads, Hq, Wq, Wk). One matrix product for each row (column)
        of queries with the Hk (Wk) vectors it needs: no product is thrown away and none gathered.
    """
    shape = (*by_row.shape[:2], rows.shape[-3], cols.shape[-3], -1)
    head = 'h' if rows.dim() == 4 else ''
    return (torch.einsum(f'bhyxd,{head}ykd->bhyxk', by_row.reshape(shape), rows),
            torch.einsum(f'bhyxd,{head}xkd->bhyxk', by_col.reshape(shape), cols))


def join_axes(rows: Tensor, cols: Tensor) -> Tensor:
    """Sum of a row term (..., Hk) and a column term (..., Wk) for every pair, (..., Hk * Wk)."""
    return (rows[..., :, None] + cols[..., None, :]).flatten(-2)


def pick_entries(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table ([heads], n, d) for each pair: ([heads], *index.shape, d)."""
    picked: Tensor = table.index_select(-2, index.flatten())
    return picked.view(*table.shape[:-2], *index.shape, table.shape[-1])
