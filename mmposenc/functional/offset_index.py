"""Which row of a learned table the offset of a query and a key stands for."""
from __future__ import annotations

import torch
from torch import Tensor

from .grids import Grid
from .offsets import axis_offsets, expand_offsets


def axis_index(num_queries: int, num_keys: int, query_stride: float, key_stride: float, limit: int,
               device: torch.device | None = None) -> Tensor:
    """Row of each pair in a table of the offsets -limit .. limit of an axis: clip(j - i) + limit.

    Real offsets of keys on a coarser grid go to the nearest integer (halves to the even one, as
    ``torch.round``), longer ones than the limit to the last row.

    Returns:
        (num_queries, num_keys) long in [0, 2 * limit], by key minus query.
    """
    values, index = axis_offsets(num_queries, num_keys, query_stride, key_stride, device)
    return _clip(values, limit)[index]


def grid_index(query: Grid, key: Grid, limits: tuple[int, int], device: torch.device
               ) -> tuple[Tensor, Tensor]:
    """:func:`axis_index` of the rows (Hq, Hk) and of the columns (Wq, Wk)."""
    return (axis_index(query.height, key.height, query.stride_h, key.stride_h, limits[0], device),
            axis_index(query.width, key.width, query.stride_w, key.stride_w, limits[1], device))


def pair_ids(query: Grid, key: Grid, limits: tuple[int, int], device: torch.device) -> Tensor:
    """Row (Lq, Lk) of each pair in a flattened table (2 * limits[0] + 1, 2 * limits[1] + 1, ...) of
    2-D offsets, key minus query."""
    rows, row_index = axis_offsets(query.height, key.height, query.stride_h, key.stride_h, device)
    cols, col_index = axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device)
    ids = _clip(rows, limits[0])[:, None] * (2 * limits[1] + 1) + _clip(cols, limits[1])
    return expand_offsets(ids, row_index, col_index)


def sequence_places(query: Grid, key: Grid, num_prefix_tokens: int, device: torch.device) -> Tensor:
    """Places (P + Lk,) of keys in the sequence of queries: that of the query cell nearest to the
    key's centre; prefix tokens come first."""
    row = _nearest(query.height, key.height, key.stride_h / query.stride_h, device)
    col = _nearest(query.width, key.width, key.stride_w / query.stride_w, device)
    cells = (row[:, None] * query.width + col).flatten() + num_prefix_tokens
    return torch.cat((torch.arange(num_prefix_tokens, device=device), cells))


def sequence_index(query: Grid, key: Grid, num_prefix_tokens: int, limit: int,
                   device: torch.device) -> Tensor:
    """As :func:`axis_index`, (P + Lq, P + Lk) for the flattened grid behind its prefix tokens."""
    places = sequence_places(query, key, num_prefix_tokens, device)
    queries = torch.arange(num_prefix_tokens + query.num_cells, device=device)
    return (places - queries[:, None]).clamp(-limit, limit) + limit


def _clip(offsets: Tensor, limit: int) -> Tensor:
    """Offsets query minus key -> rows of a table by key minus query."""
    return (-offsets).round().long().clamp(-limit, limit) + limit


def _nearest(num_queries: int, num_keys: int, stride: float, device: torch.device) -> Tensor:
    centres = (torch.arange(num_keys, device=device) + 0.5) * stride - 0.5
    return centres.round().long().clamp(0, num_queries - 1)
