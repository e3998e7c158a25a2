"""Offsets between query and key cells, one axis at a time."""
from __future__ import annotations

import torch
from torch import Tensor


def axis_offsets(num_queries: int, num_keys: int, query_stride: float = 1.0,
                 key_stride: float = 1.0, device: torch.device | str | None = None
                 ) -> tuple[Tensor, Tensor]:
    """Offsets query minus key along one axis: the distinct values, and where each pair finds its.

    Cell i lies at (i + 0.5) * stride - 0.5. With whole strides the offsets repeat, and there are
    only about as many distinct ones as cells; with others every pair has its own.

    Args:
        num_queries, num_keys: cells along the axis.
        query_stride, key_stride: their spacing, in cells of the query grid.
        device: where to put the result.

    Returns:
        values (D,) float32 offsets, ascending where strides are whole, and index
        (num_queries, num_keys) long, with values[index[i, j]] = position of i - position of j.
    """
    rows = torch.arange(num_queries, device=device)
    cols = torch.arange(num_keys, device=device)
    if query_stride == int(query_stride) and key_stride == int(key_stride):
        sq, sk = int(query_stride), int(key_stride)
        lowest = sk * (num_keys - 1)
        values = torch.arange(-lowest, sq * (num_queries - 1) + 1, device=device) + (sq - sk) / 2
        return values, rows[:, None] * sq - cols * sk + lowest
    at_rows = (rows + 0.5) * query_stride
    at_cols = (cols + 0.5) * key_stride
    index = rows[:, None] * num_keys + cols
    return (at_rows[:, None] - at_cols).flatten(), index


def expand_offsets(table: Tensor, row_index: Tensor, col_index: Tensor) -> Tensor:
    """table[row offset, column offset] for every pair of cells, as an (Lq, Lk) matrix.

    Args:
        table: (Dr, Dc), one entry for each pair of distinct offsets.
        row_index: (Hq, Hk), col_index: (Wq, Wk), from :func:`axis_offsets`.

    Returns:
        (Hq * Wq, Hk * Wk), of table's dtype.
    """
    hq, hk = row_index.shape
    wq, wk = col_index.shape
    # Columns first, on the small table; then whole runs of Wk entries are copied for each pair of
    # rows, which is far faster than looking up every pair of cells.
    runs = table[:, col_index].permute(1, 0, 2).reshape(-1, wk)
    starts = torch.arange(wq, device=table.device) * table.shape[0]
    which = row_index[:, None, :] + starts[:, None]
    return runs.index_select(0, which.flatten()).view(hq * wq, hk * wk)
