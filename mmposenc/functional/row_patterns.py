"""Spreading a look-up row over the keys by runs, and its adjoint.

In every method of iRPE the bucket of (query cell, key cell) depends on the two rows only through a
*row pattern*: all pairs of rows with the same pattern give a query column c the same run of buckets
over the key columns. So a query's look-up row is expanded once for each pattern, (patterns, Wk)
numbers, and the logits of all its keys are copies of those runs: no gather over (Lq, Lk), and the
adjoint adds runs up.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .buckets import BucketParams, index_function, offset_buckets
from .grids import Grid
from .offsets import axis_offsets


@dataclass(frozen=True)
class RowPatterns:
    """How the look-ups of query cells spread over key cells.

    method: 'product', 'cross' or 'dense'.
    pattern: (Hq, Hk) long, the pattern of each pair of rows.
    columns: one-hot (Wq, n, Wk) buckets of the column offset ('product' and 'cross'), or
        (Wq, buckets, patterns * Wk) of both ('dense').
    num_patterns: patterns, P below.
    """

    method: str
    pattern: Tensor
    columns: Tensor
    num_patterns: int

    def expand(self, lookup: Tensor) -> Tensor:
        """Runs (Wq, M, P, Wk) of look-up rows (Wq, M, buckets), M queries in each column."""
        wq, many, _ = lookup.shape
        if self.method == 'dense':
            return torch.bmm(lookup, self.columns).view(wq, many, self.num_patterns, -1)
        n = self.num_patterns
        if self.method == 'product':
            return torch.bmm(lookup.reshape(wq, many * n, n), self.columns).view(wq, many, n, -1)
        columns = torch.bmm(lookup[..., n:], self.columns)
        return lookup[..., :n, None] + columns[:, :, None]

    def contract(self, runs: Tensor) -> Tensor:
        """The adjoint: (Wq, M, P, Wk) to (Wq, M, buckets)."""
        wq, many, n, wk = runs.shape
        adjoint = self.columns.transpose(1, 2)
        if self.method == 'dense':
            return torch.bmm(runs.reshape(wq, many, n * wk), adjoint)
        if self.method == 'product':
            return torch.bmm(runs.reshape(wq, many * n, wk), adjoint).view(wq, many, n * n)
        return torch.cat([runs.sum(-1), torch.bmm(runs.sum(-2), adjoint)], -1)


def row_patterns(method: str, query: Grid, key: Grid, params: BucketParams, dtype: torch.dtype,
                 device: torch.device) -> RowPatterns:
    """Patterns of a pair of grids.

    Args:
        method: a method of :func:`mmposenc.functional.bucket_ids`. Channels of a look-up row are
            its buckets; for 'cross' those of the rows, then those of the columns.
    """
    rows, row_index = axis_offsets(query.height, key.height, query.stride_h, key.stride_h, device)
    cols, col_index = axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device)
    axis = 2 * int(params.beta) + 1
    if method in ('product', 'cross'):
        row_ids, col_ids = (index_function(each, params) + axis // 2 for each in (rows, cols))
        columns = F.one_hot(col_ids[col_index], axis).transpose(1, 2).to(dtype)
        return RowPatterns(method, row_ids[row_index], columns.contiguous(), axis)
    table = offset_buckets(method, rows, cols, params)
    patterns, which = torch.unique(table, dim=0, return_inverse=True)
    runs = patterns[:, col_index].transpose(0, 1).flatten(1)  # (Wq, P * Wk)
    columns = F.one_hot(runs, axis).transpose(1, 2).to(dtype).contiguous()
    return RowPatterns('dense', which[row_index], columns, patterns.shape[0])


def with_prefix(pattern: Tensor, num_patterns: int, extra_rows: int) -> Tensor:
    """Patterns (Hq, Hk + extra_rows): each further key row has a pattern of its own."""
    further = torch.arange(num_patterns, num_patterns + extra_rows, device=pattern.device)
    return torch.cat([pattern, further.expand(pattern.shape[0], -1)], 1)


@dataclass(frozen=True)
class Spread:
    """Index tensors that spread runs over some query rows of some heads, and add them up.

    Runs lie in rows of Wk numbers, ordered (column, head, query row, pattern); logits in rows of Wk
    numbers ordered (head, query row, column, key row).
    """

    take: Tensor
    order: Tensor
    starts: Tensor

    def spread(self, runs: Tensor, out: Tensor) -> None:
        """Copy runs (any shape ending in Wk) to ``out``, logits."""
        wk = runs.shape[-1]
        torch.index_select(runs.view(-1, wk), 0, self.take, out=out.view(-1, wk))

    def sums(self, logits: Tensor, wk: int) -> Tensor:
        """Runs (number of runs, Wk): the sum of the logit rows each was copied to."""
        return F.embedding_bag(self.order, logits.view(-1, wk), self.starts, mode='sum')


def spread_plan(pattern: Tensor, num_patterns: int, heads: int, columns: int) -> Spread:
    """Index tensors for query rows with ``pattern`` (R, Hk), of ``heads`` heads and Wq ``columns``.
    """
    num_rows, key_rows = pattern.shape
    device = pattern.device
    g = torch.arange(heads, device=device)[:, None, None]
    r = torch.arange(num_rows, device=device)[:, None]
    c = torch.arange(columns, device=device)
    first_run = ((c * heads + g) * num_rows + r) * num_patterns  # (heads, R, columns)
    take = first_run[..., None] + pattern[:, None]
    by_pattern = pattern.argsort(dim=1, stable=True)
    count = F.one_hot(pattern, num_patterns).sum(1)
    before = count.cumsum(1) - count
    first_logit = ((g * num_rows + r) * columns + c) * key_rows
    order = (first_logit[..., None] + by_pattern[:, None]).permute(2, 0, 1, 3)
    at = ((c[:, None, None] * heads + g[:, :, 0]) * num_rows + r[:, 0]) * key_rows
    return Spread(take.flatten(), order.flatten(), (at[..., None] + before).flatten())


def transposed_plan(pattern: Tensor, num_patterns: int, heads: int, columns: int,
                    extra_rows: int) -> Spread:
    """As :func:`spread_plan`, for runs ordered (column, head, key row, pattern).

    Args:
        pattern: (Hk, R) patterns of key rows against some query rows.
        extra_rows: key rows after those, with one run for each head, at the end of the runs.
    """
    key_rows, num_rows = pattern.shape
    device = pattern.device
    g = torch.arange(heads, device=device)[:, None, None]
    r = torch.arange(num_rows, device=device)[:, None]
    c = torch.arange(columns, device=device)
    j = torch.arange(key_rows, device=device)
    first_run = ((c * heads + g) * key_rows)[..., None] + j  # (heads, 1, columns, Hk)
    take = first_run * num_patterns + pattern.t()[:, None]
    all_rows = key_rows + extra_rows
    first_logit = ((g * num_rows + r) * columns + c) * all_rows  # (heads, R, columns)
    by_pattern = pattern.argsort(dim=1, stable=True)
    count = F.one_hot(pattern, num_patterns).sum(1)
    before = count.cumsum(1) - count
    # (columns, heads, Hk, R): query rows by pattern
    order = ((g * num_rows + by_pattern) * columns).expand(columns, -1, -1, -1)
    order = (order + c[:, None, None, None]) * all_rows + j[:, None]
    at = (((c[:, None, None] * heads + g[:, :, 0]) * key_rows + j) * num_rows)[..., None] + before
    order, at = order.flatten(), at.flatten()
    if extra_rows:
        x = torch.arange(extra_rows, device=device)
        first_extra = columns * heads * key_rows * num_patterns + g[..., None] * extra_rows
        take = torch.cat([take, (first_extra + x).expand(-1, num_rows, columns, -1)], 3)
        extra = (first_logit.flatten(1)[:, None] + key_rows + x[:, None]).flatten()
        starts = order.shape[0] + torch.arange(heads * extra_rows, device=device) * (
            num_rows * columns)
        order, at = torch.cat([order, extra]), torch.cat([at, starts])
    return Spread(take.flatten(), order, at)


def shared_plan(pattern: Tensor, num_patterns: int, which: Tensor, columns: int) -> Spread:
    """As :func:`spread_plan`, for runs (heads, column, pattern) that all query rows share.

    Args:
        pattern: (R, Hk).
        which: (heads,) which head's runs each takes; the sums are one for each of them.
    """
    num_rows, key_rows = pattern.shape
    c = torch.arange(columns, device=pattern.device)
    take = (((which[:, None, None] * columns + c) * num_patterns)[..., None] + pattern[:, None])
    flat = pattern.flatten()
    by_pattern = flat.argsort(stable=True)
    count = F.one_hot(flat, num_patterns).sum(0)
    before = count.cumsum(0) - count
    r, j = by_pattern // key_rows, by_pattern % key_rows
    g = torch.arange(which.shape[0], device=pattern.device)[:, None, None]
    order = ((g * num_rows + r) * columns + c[:, None]) * key_rows + j
    at = (g * columns + c[:, None]) * (num_rows * key_rows) + before
    return Spread(take.flatten(), order.flatten(), at.flatten())
