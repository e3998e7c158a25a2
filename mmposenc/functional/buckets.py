"""Buckets of 2-D offsets as in iRPE (Wu et al., ICCV 2021, Sec. 3.2).

Buckets depend on the offset alone, so they are computed once for each distinct row and column
offset, H + W values instead of (H W)^2, and spread from there.
"""
from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .grid_cache import CACHE
from .grids import Grid, GridLike, as_grid, key_grid
from .offsets import axis_offsets, expand_offsets

METHODS = ('euclidean', 'quantization', 'cross', 'product')
INDEX_FUNCTIONS = ('piecewise', 'clip')
QUANTIZATIONS = ('squared', 'rank')


class BucketParams(NamedTuple):
    """Everything that turns an offset into a bucket, except the method.

    alpha: offsets up to it keep their own bucket. beta: buckets reach from -int(beta) to int(beta).
    gamma: the offset at which the last bucket is reached.
    """

    alpha: float
    beta: float
    gamma: float
    function: str = 'piecewise'
    quantization: str = 'squared'


def bucket_params(ratio: float | None = None, alpha: float | None = None, beta: float | None = None,
                  gamma: float | None = None, index: str = 'piecewise',
                  quantization: str = 'squared') -> BucketParams:
    """Check the arguments of :func:`bucket_ids`; alpha : beta : gamma = 1 : 2 : 8 times ``ratio``.

    Raises:
        ValueError: unless either ``ratio`` or all of alpha, beta, gamma are given, with
            0 < alpha < gamma and 1 <= beta; for an unknown ``index`` or ``quantization``.
    """
    explicit = (alpha, beta, gamma)
    if ratio is not None:
        if any(value is not None for value in explicit):
            raise ValueError(f'ratio={ratio} and alpha={alpha}, beta={beta}, gamma={gamma}: give '
                             f'either ratio or the three, not both')
        if not ratio > 0 or not math.isfinite(ratio):
            raise ValueError(f'ratio={ratio} must be a positive number')
        if ratio < 0.5:
            raise ValueError(f'ratio={ratio} must be at least 0.5, so that beta = 2 ratio is at '
                             'least 1')
        alpha, beta, gamma = 1 * ratio, 2 * ratio, 8 * ratio
    elif alpha is None or beta is None or gamma is None:
        raise ValueError(f'alpha={alpha}, beta={beta}, gamma={gamma}: give all three, or ratio')
    if not (0 < alpha < gamma < math.inf and 1 <= beta < math.inf):
        raise ValueError(f'alpha={alpha}, beta={beta}, gamma={gamma} must satisfy '
                         f'0 < alpha < gamma and beta >= 1')
    if index not in INDEX_FUNCTIONS:
        raise ValueError(f'index={index!r} must be one of {", ".join(INDEX_FUNCTIONS)}')
    if quantization not in QUANTIZATIONS:
        raise ValueError(f'quantization={quantization!r} must be one of {", ".join(QUANTIZATIONS)}')
    return BucketParams(float(alpha), float(beta), float(gamma), index, quantization)


def num_buckets(method: str, params: BucketParams) -> int:
    """Buckets of a method (of each axis for 'cross'), without the one of prefix tokens.

    Euclidean and quantization reach only the upper half; the release keeps the other, and so do we,
    for its checkpoints.
    """
    _check_method(method)
    axis = 2 * int(params.beta) + 1
    return axis * axis if method == 'product' else axis


def index_function(x: Tensor, params: BucketParams) -> Tensor:
    """g(x) of iRPE eq. 18 ('piecewise') or the clip function of eq. 10 ('clip'), as the release
    computes them.

    piecewise: round(x) for |x| <= alpha, else sign(x) * min(beta, round(alpha + ln(|x| / alpha) /
    ln(gamma / alpha) * (beta - alpha))). The release clips after it rounds and then truncates, so
    beta = 3.8 ends at 3; that is kept.

    Args:
        x: real offsets.

    Returns:
        long, within [-int(beta), int(beta)].
    """
    alpha, beta, gamma = params.alpha, params.beta, params.gamma
    x = x.float()
    if params.function == 'clip':
        return x.round().clamp(-beta, beta).long()
    magnitude = x.abs()
    # clamp: logarithms of the branch that is not taken must not be -inf
    far = alpha + torch.log((magnitude / alpha).clamp(min=1e-6)) / math.log(gamma / alpha) * (
        beta - alpha)
    # The release does not clip the near branch: with beta < alpha it would index out of the table.
    steps = torch.where(magnitude <= alpha, magnitude.round(), far.round()).clamp(0, beta)
    return (torch.sign(x) * steps).long()


def offset_buckets(method: str, rows: Tensor, cols: Tensor, params: BucketParams) -> Tensor:
    """Buckets of every pair of a row offset and a column offset.

    Args:
        method: 'euclidean', 'quantization' or 'product'.
        rows: (Dr,), cols: (Dc,) offsets.

    Returns:
        (Dr, Dc) long in [0, num_buckets(method)).
    """
    middle = int(params.beta)
    if method == 'product':
        row_ids = index_function(rows, params) + middle
        return row_ids[:, None] * (2 * middle + 1) + index_function(cols, params) + middle
    squared = rows.float().square()[:, None] + cols.float().square()
    if method == 'euclidean':
        distance = squared.sqrt().round()
    elif params.quantization == 'squared':
        distance = squared
    else:
        # Whole strides: there are more offsets along an axis than the largest one is long.
        compiling = torch.compiler.is_compiling()
        distance = distance_rank(squared, rows.shape[0] + cols.shape[0] if compiling else None)
    return index_function(distance, params) + middle


def distance_rank(squared: Tensor, max_distance: int | None = None) -> Tensor:
    """Rank of a distance among all distances between grid cells: 0, 1, sqrt 2, 2, sqrt 5, ... are
    0, 1, 2, 3, 4, ... (Quant of iRPE eq. 16).

    The ranks are those of the infinite grid, so they do not change with the image. A distance that
    lies between two takes the rank of the lower one, after rounding its square.

    Args:
        squared: squared distances.
        max_distance: at least the largest distance; found from the values when None (which
            torch.compile can't trace).

    Returns:
        float ranks, same shape.
    """
    reach = max_distance if max_distance is not None else math.isqrt(int(squared.max().item()) + 1)
    axis = torch.arange(reach + 1, device=squared.device).square()
    is_distance = torch.zeros(2 * reach * reach + 1, device=squared.device)
    # Past reach ** 2 some sums are missing, but nothing looks there.
    is_distance[(axis[:, None] + axis).flatten()] = 1.0
    return is_distance.cumsum(0)[squared.round().long()] - 1


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
    _check_method(method)
    params = bucket_params(ratio, alpha, beta, gamma, index, quantization)
    return grid_buckets(method, hw_query, hw_key, params, device)


def grid_buckets(method: str, hw_query: GridLike, hw_key: GridLike | None, params: BucketParams,
                 device: torch.device | str | None = None) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`bucket_ids` with parameters that are already checked."""
    query = as_grid(hw_query, 'hw_query')
    key = key_grid(query, hw_key)
    device = torch.empty(0, device=device).device
    if method != 'cross':
        # Only what depends on the offset alone is kept: the ids themselves are as large as L * L.
        return expand_offsets(*CACHE.get(
            ('offset_buckets', method, query, key, params, device),
            lambda: _distinct_buckets(method, query, key, params, device), list))
    rows, row_index = axis_offsets(query.height, key.height, query.stride_h, key.stride_h, device)
    cols, col_index = axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device)
    middle = int(params.beta)
    row_ids = (index_function(rows, params) + middle)[row_index]
    col_ids = (index_function(cols, params) + middle)[col_index]
    shape = (query.height, query.width, key.height, key.width)
    return (row_ids[:, None, :, None].expand(shape).reshape(query.num_cells, key.num_cells),
            col_ids[None, :, None, :].expand(shape).reshape(query.num_cells, key.num_cells))


def _distinct_buckets(method: str, query: Grid, key: Grid, params: BucketParams,
                      device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Buckets (Dr, Dc) of distinct offsets, and those of pairs of rows and of columns."""
    rows, row_index = axis_offsets(query.height, key.height, query.stride_h, key.stride_h, device)
    cols, col_index = axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device)
    return offset_buckets(method, rows, cols, params), row_index, col_index


def add_prefix_bucket(ids: Tensor, num_prefix_tokens: int, bucket: int) -> Tensor:
    """Put rows and columns of the prefix tokens' ``bucket`` in front of ids (Lq, Lk)."""
    if num_prefix_tokens == 0:
        return ids
    return torch.nn.functional.pad(ids, (num_prefix_tokens, 0, num_prefix_tokens, 0), value=bucket)


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise ValueError(f'method={method!r} must be one of {", ".join(METHODS)}')
