"""Offsets between query and key cells, one axis at a time."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .grid_cache import CACHE
from .grids import Grid


def axis_offsets(num_queries: int, num_keys: int, query_stride: float = 1.0,
                 key_stride: float = 1.0, device: torch.device | str | None = None
                 ) -> tuple[Tensor, Tensor]:
    """Offsets query minus key along one axis: the distinct values, and where each pair finds its.

    Cell i lies at (i + 0.5) * stride - 0.5. With whole strides the offsets repeat, and there are
    only about as many distinct ones as cells; with others there may be one for every pair.

    Args:
        num_queries, num_keys: cells along the axis.
        query_stride, key_stride: their spacing, in cells of the query grid.
        device: where to put the result.

    Returns:
        values (D,) float32 offsets, ascending, and index
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
    offsets = at_rows[:, None] - at_cols
    if torch.compiler.is_compiling():  # can't know how many there are
        return offsets.flatten(), rows[:, None] * num_keys + cols
    values, index = torch.unique(offsets, return_inverse=True)
    return values, index


def grid_offsets(query: Grid, key: Grid, device: torch.device | str | None = None
                 ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:func:`axis_offsets` of the rows (Dr,), (Hq, Hk), then of the columns (Dc,), (Wq, Wk)."""
    return (*axis_offsets(query.height, key.height, query.stride_h, key.stride_h, device),
            *axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device))


def table_entries(query: Grid, key: Grid, limits: tuple[int, int], device: torch.device
                  ) -> tuple[Tensor, Tensor]:
    """Which entry of a table of the offsets -limit .. limit, by key minus query, pairs of rows
    (Hq, Hk) and of columns (Wq, Wk) have.

    Real offsets of keys on a coarser grid go to the nearest whole number (halves to the even one,
    as ``torch.round``), longer ones than the limit to the last entry.
    """
    rows, row_index, cols, col_index = grid_offsets(query, key, device)
    rows, cols = ((-offsets).round().long().clamp(-limit, limit) + limit
                  for offsets, limit in zip((rows, cols), limits, strict=True))
    return rows[row_index], cols[col_index]


def pair_places(query: Grid, key: Grid, num_prefix_tokens: int, device: torch.device
                ) -> Callable[[Tensor, Tensor], Tensor]:
    """Where a table of offsets (Dr, Dc), flattened, holds that of tokens i and j; any place in it
    for pairs with a prefix token.

    With whole strides it is a number of the query plus one of the key, so that a kernel reads two
    vectors instead of an index of rows and one of columns for each pair.
    """
    p = num_prefix_tokens
    if all(stride == int(stride) for stride in (*query[2:4], *key[2:4])):
        by_query, by_key = CACHE.get(('pair_places', query, key, p, device),
                                     lambda: _token_places(query, key, p, device), list)
        return lambda i, j: by_query[i] + by_key[j]
    _, row_index, cols, col_index = grid_offsets(query, key, device)
    width = cols.shape[0]

    def place(i: Tensor, j: Tensor) -> Tensor:
        a, c = (i - p).clamp(min=0), (j - p).clamp(min=0)
        return (row_index[a // query.width, c // key.width] * width
                + col_index[a % query.width, c % key.width])
    return place


def _token_places(query: Grid, key: Grid, p: int, device: torch.device) -> list[Tensor]:
    """The two numbers of :func:`pair_places`, int32."""
    _, row_index, cols, col_index = grid_offsets(query, key, device)
    rows = row_index[:, 0], row_index[0] - row_index[0, 0]
    columns = col_index[:, 0], col_index[0] - col_index[0, 0]
    cells = [(row[:, None] * cols.shape[0] + column).flatten().int()
             for row, column in zip(rows, columns, strict=True)]
    return [torch.cat((x[:1].expand(p), x)) for x in cells]


def sequence_places(query: Grid, key: Grid, num_prefix_tokens: int,
                    device: torch.device | str | None = None) -> Tensor:
    """Places (P + Lk,) of keys in the sequence of queries: that of the query cell nearest to the
    key's centre; prefix tokens come first."""
    row = _nearest(query.height, key.height, key.stride_h / query.stride_h, device)
    col = _nearest(query.width, key.width, key.stride_w / query.stride_w, device)
    cells = (row[:, None] * query.width + col).flatten() + num_prefix_tokens
    return torch.cat((torch.arange(num_prefix_tokens, device=device), cells))


def _nearest(num_queries: int, num_keys: int, stride: float, device: torch.device | str | None
             ) -> Tensor:
    centres = (torch.arange(num_keys, device=device) + 0.5) * stride - 0.5
    return centres.round().long().clamp(0, num_queries - 1)


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
