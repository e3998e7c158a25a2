"""Offsets between query and key cells, one axis at a time."""
from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
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
                ) -> tuple[Callable[[Tensor, Tensor], Tensor], list[int]]:
    """Where a table of offsets (Dr, Dc), flattened, holds that of tokens i and j; and how many
    entries :func:`with_prefix` puts behind it for pairs with a prefix token.

    With whole strides a place is a number of the query plus one of the key, whether or not they are
    prefix tokens: a kernel reads two vectors and decides nothing pair by pair, which would take
    the registers it has (benchmarks/flex_sm90.py).
    """
    p = num_prefix_tokens
    if all(stride == int(stride) for stride in (*query[2:4], *key[2:4])):
        by_query, by_key, behind = CACHE.get(
            ('pair_places', query, key, p, device),
            lambda: _token_places(query, key, p, device), lambda found: list(found[:2]))
        return lambda i, j: by_query[i] + by_key[j], behind
    rows, row_index, cols, col_index = grid_offsets(query, key, device)
    length, width = rows.shape[0] * cols.shape[0], cols.shape[0]

    def place(i: Tensor, j: Tensor) -> Tensor:
        a, c = (i - p).clamp(min=0), (j - p).clamp(min=0)
        cell = (row_index[a // query.width, c // key.width] * width
                + col_index[a % query.width, c % key.width])
        if not p:
            return cell
        between = torch.where(j < p, length + 2, length)
        return torch.where(i < p, between, torch.where(j < p, length + 1, cell))
    return place, [1, 1, 1] if p else []


def _token_places(query: Grid, key: Grid, p: int, device: torch.device
                  ) -> tuple[Tensor, Tensor, list[int]]:
    """The two numbers of :func:`pair_places`, int32, and what it puts behind the table. Those of
    prefix tokens are so large that sums of either kind of pair lie behind the table and behind one
    another."""
    rows, row_index, cols, col_index = grid_offsets(query, key, device)
    row = row_index[:, 0], row_index[0] - row_index[0, 0]
    column = col_index[:, 0], col_index[0] - col_index[0, 0]
    length, width = rows.shape[0] * cols.shape[0], cols.shape[0]
    # Cells of queries have lowest .. length - 1, those of keys -lowest .. 0.
    lowest = (key.height - 1) * int(key.stride_h) * width + (key.width - 1) * int(key.stride_w)
    by_query, by_key = (
        F.pad((r[:, None] * width + c).flatten().int(), (p, 0), value=prefix)
        for r, c, prefix in zip(row, column, (length + lowest, length + 1), strict=True))
    return by_query, by_key, [lowest + 1, length - lowest, lowest + 1] if p else []


def with_prefix(table: Tensor, kinds: Tensor, behind: list[int]) -> Tensor:
    """A table of offsets with what pairs with a prefix token have behind it.

    Args:
        table: (..., Dr * Dc).
        kinds: (..., 3) for prefix to cell, cell to prefix and prefix to prefix, as many dimensions.
        behind: of :func:`pair_places`; empty without prefix tokens.
    """
    if not behind:
        return table
    shape = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        table.shape[:-1], kinds.shape[:-1])
    parts = [kind.expand(*shape, count)
             for kind, count in zip(kinds.split(1, -1), behind, strict=True)]  # type: ignore[no-untyped-call]
    return torch.cat((table.expand(*shape, -1), *parts), -1)


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
