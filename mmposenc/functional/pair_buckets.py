"""The bucket of every pair of cells."""
from __future__ import annotations

import torch
from torch import Tensor

from .buckets import Buckets, axis_buckets, bucket_params, check_method
from .grids import GridLike, as_grid, key_grid


def bucket_ids(method: str, hw_query: GridLike, hw_key: GridLike | None = None, *,
               ratio: float | None = None, alpha: float | None = None, beta: float | None = None,
               gamma: float | None = None, index: str = 'piecewise', quantization: str = 'squared',
               device: torch.device | str | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """Bucket of every query-key pair (iRPE, ICCV 2021, eqs. 12-18).

    The offset is query minus key, rows then columns. What is kept between calls is the buckets of
    the distinct offsets of the latest grids, under 1 MiB in all; 25 x 42 cells take about a
    millisecond, which is what writing their pairs takes.

    Args:
        method: 'euclidean' (rounded distance), 'quantization' (squared distance or its rank),
            'cross' (rows and columns each for itself) or 'product' (pairs of the two).
        hw_query: (Hq, Wq).
        hw_key: (Hk, Wk), by default the query grid. A plain pair covers the same area as the query
            grid, at its own resolution; a :class:`Grid` gives its strides.
        ratio: sets alpha, beta, gamma to 1, 2, 8 times it; or give the three.
        index: 'piecewise' or 'clip'.
        quantization: 'squared' as released, 'rank' as in the paper.
        device: where to put the result.

    Returns:
        (Lq, Lk) long in [0, num_buckets); for 'cross' a pair (rows, columns) of them.

    Raises:
        ValueError: for an unknown method, index or quantization, or parameters that do not fit.
    """
    check_method(method)
    params = bucket_params(ratio, alpha, beta, gamma, index, quantization)
    query = as_grid(hw_query, 'hw_query')
    key = key_grid(query, hw_key)
    if method != 'cross':
        return Buckets(method, params, query, key).ids(device)
    row_ids, col_ids = axis_buckets(query, key, params, device)
    shape = query.num_cells, key.num_cells
    return (row_ids[:, None, :, None].repeat(1, query.width, 1, key.width).view(shape),
            col_ids[None, :, None, :].repeat(query.height, 1, key.height, 1).view(shape))
