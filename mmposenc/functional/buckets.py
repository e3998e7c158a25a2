"""Buckets of 2-D offsets as in iRPE (Wu et al., ICCV 2021, Sec. 3.2).

Buckets depend only on the offset, so they are computed once for each distinct row and column
offset, H + W values instead of (H W)^2, and spread from there.
"""
from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .grids import Grid, expand_offsets, grid_offsets, sequence_places, stored
from .tracing import may_branch_on

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
    """Check the arguments of ``bucket_ids``; alpha : beta : gamma = 1 : 2 : 8 times ``ratio``.

    Raises:
        ValueError: unless either ``ratio`` or all of alpha, beta, gamma are given, with
            0 < alpha < gamma and 1 <= beta; for an unknown ``index`` or ``quantization``.
    """
    explicit = (alpha, beta, gamma)
    if ratio is not None:
        if any(value is not None for value in explicit):
            raise ValueError(f'ratio={ratio} and alpha={alpha}, beta={beta}, gamma={gamma}: give '
                             f'either ratio or the three, not both')
        if not 0.5 <= ratio < math.inf:
            raise ValueError(f'ratio={ratio} must be a finite number of at least 0.5, so that '
                             'beta = 2 ratio is at least 1')
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
    check_method(method)
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
    # Clamped, because the logarithm of the branch that is not taken must not be -inf.
    far = alpha + torch.log((magnitude / alpha).clamp(min=1e-6)) / math.log(gamma / alpha) * (
        beta - alpha)
    # The release does not clip the near branch; with beta < alpha it would read beyond the table.
    steps = torch.where(magnitude <= alpha, magnitude.round(), far.round()).clamp(0.0, beta)
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
        # An accelerator would have to be waited for. Instead an upper limit is used: an axis has
        # more offsets than the largest one is long.
        reads = squared.device.type == 'cpu' and may_branch_on(squared)
        longest = None if reads else rows.shape[0] + cols.shape[0]
        distance = distance_rank(squared, longest)
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
    # Whole numbers, because CUDA has no deterministic cumulative sum of floating-point numbers.
    is_distance = torch.zeros(2 * reach * reach + 1, dtype=torch.long, device=squared.device)
    # Beyond reach ** 2 some sums of two squares are missing, but nothing is read there.
    is_distance[(axis[:, None] + axis).flatten()] = 1
    return (is_distance.cumsum(0)[squared.round().long()] - 1).float()


class Buckets(NamedTuple):
    """Which bucket every pair of a query and a key falls into.

    method: one of ``bucket_ids`` but 'cross' (which is 'product' with a sum of two tables), or
    'sequence': the distance of places in the flattened grid after its prefix tokens, clipped to
    ``params.beta``. query, key: grids of the cells. prefix: tokens in front of either, whose pairs
    share one more bucket, the last. reverse: buckets are numbered by key minus query, the order of
    some tables, instead of query minus key.
    """

    method: str
    params: BucketParams
    query: Grid
    key: Grid
    prefix: int = 0
    reverse: bool = False

    @property
    def num_offset_buckets(self) -> int:
        """The number of buckets of offsets, without the bucket of prefix tokens."""
        return num_buckets('cross' if self.method == 'sequence' else self.method, self.params)

    @property
    def num_all(self) -> int:
        """The number of all buckets, that of prefix tokens included."""
        return self.num_offset_buckets + (self.prefix > 0 and self.method != 'sequence')

    def swapped(self) -> Buckets:
        """The same buckets with the roles of queries and keys exchanged."""
        return self._replace(query=self.key, key=self.query, reverse=not self.reverse)

    def offsets_and_indices(self, device: torch.device | str | None
                            ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The distinct row offsets, and which of them each pair of rows (Hq, Hk) has; then the same
        for columns."""
        rows, row_index, cols, col_index = grid_offsets(self.query, self.key, device)
        return (-rows, row_index, -cols, col_index) if self.reverse else (
            rows, row_index, cols, col_index)

    def ids(self, device: torch.device | str | None, queries: slice = slice(None)) -> Tensor:
        """The bucket of each pair (queries, P + Lk), prefix tokens included, for all queries or
        some."""
        if self.method == 'sequence':
            limit = int(self.params.beta)
            places = sequence_places(self.query, self.key, self.prefix, device)
            length = self.prefix + self.query.num_cells
            distance = torch.arange(length, device=device)[queries, None] - places
            return (-distance if self.reverse else distance).clamp(-limit, limit) + limit
        table, row_index, col_index = self.by_offset(device)
        ids = expand_offsets(table[None], row_index, col_index)[0]
        if self.prefix:
            ids = F.pad(ids, (self.prefix, 0, self.prefix, 0), value=self.num_offset_buckets)
        return ids[queries]

    def by_offset(self, device: torch.device | str | None) -> tuple[Tensor, Tensor, Tensor]:
        """The buckets (Dr, Dc) of the distinct offsets, and which of these each pair of rows (Hq,
        Hk) and of columns (Wq, Wk) has."""
        def make() -> tuple[Tensor, Tensor, Tensor]:
            rows, row_index, cols, col_index = self.offsets_and_indices(device)
            return offset_buckets(self.method, rows, cols, self.params), row_index, col_index

        return stored(('by_offset', self), make, device)

    def stored_ids(self, device: torch.device) -> Tensor:
        """:meth:`ids` of all queries, which is stored if it is small: nobody may write to it."""
        return stored(('ids', self), lambda: self.ids(device), device)


def axis_buckets(query: Grid, key: Grid, params: BucketParams,
                 device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """The buckets of the row offsets (Hq, Hk) and of the column offsets (Wq, Wk), which are query
    minus key."""
    def make() -> tuple[Tensor, Tensor]:
        rows, row_index, cols, col_index = grid_offsets(query, key, device)
        middle = int(params.beta)
        return ((index_function(rows, params) + middle)[row_index],
                (index_function(cols, params) + middle)[col_index])

    return stored(('axis_buckets', query, key, params), make, device)


def check_method(method: str) -> None:
    """Raise ValueError if there is no method of this name."""
    if method not in METHODS:
        raise ValueError(f'method={method!r} must be one of {", ".join(METHODS)}')
