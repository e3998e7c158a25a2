"""Reading look-ups a row of keys at a time, without an index of all pairs: for long sequences.

In every method of iRPE the bucket of (query cell, key cell) depends on the two rows only through a
*row pattern*: all pairs of rows with the same pattern give a query column c the same run of buckets
over the key columns. So a query's look-up row is expanded once for each pattern, (patterns, Wk)
numbers, and the logits of all its keys are copies of those runs: no gather over (Lq, Lk), and the
adjoint adds runs up.
"""
from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mmposenc.functional.buckets import Buckets, index_function, offset_buckets
from mmposenc.functional.grids import GridCache, stored

from . import thresholds
from .layout import Chunk
from .writers import ChunkWork, copy_or_add


class Runs:
    """Reads the look-ups of queries, or with ``by_key`` those of keys, by whole rows of keys: a
    :class:`~.bucket_writer.Reader`.

    Its form of look-ups are runs (runs, Wk), ordered (query column, head, row, pattern) by the rows
    of queries, or of keys; then, with prefix tokens, the look-ups (heads, tokens, 1) of their
    bucket, which all pairs with a prefix token share.
    """

    def __init__(self, buckets: Buckets, by_key: bool, dtype: torch.dtype, device: torch.device
                 ) -> None:
        self.buckets, self.by_key, self.prefix = buckets, by_key, buckets.prefix
        self.patterns = row_patterns(buckets.swapped() if by_key else buckets, dtype, device)
        self._indices = GridCache(thresholds.INDEX_BYTES)

    def expand(self, lookup: Tensor, lead: int) -> list[Tensor]:
        """Expand look-ups to runs."""
        buckets = self.buckets
        grid = (buckets.key if self.by_key else buckets.query).width, buckets.num_offset_buckets
        cells = lookup[:, lead:, :grid[1]].unflatten(1, (-1, grid[0]))  # heads, rows, columns, n
        runs = self.patterns.expand_to_runs(cells.permute(2, 0, 1, 3).flatten(1, 2).contiguous())
        if self.by_key:
            runs = runs.permute(3, 1, 2, 0)
        runs = runs.reshape(-1, buckets.key.width)
        return [runs, lookup[..., -1:]] if self.prefix else [runs]

    def write(self, expanded: list[Tensor], work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Copy a run to each row of keys."""
        chunk, runs = work.chunk, expanded[0]
        cells = logits[:, chunk.lead:, self.prefix:]
        direct = cells.is_contiguous() and not add
        out = cells if direct else work.other.view(-1)[:cells.numel()].view(cells.shape)
        take = self._indices_of_chunk(chunk)[0]
        torch.index_select(runs, 0, take, out=out.view(-1, runs.shape[1]))
        if not direct:
            copy_or_add(out, cells, add)
        if self.prefix:
            first, prefix = self._logits_with_prefix(logits, chunk)
            copy_or_add(expanded[1][:, :first.shape[1]], first, add)
            copy_or_add(expanded[1][:, first.shape[1]:], prefix, add)

    def sums(self, logits: Tensor, chunk: Chunk) -> list[Tensor]:
        """Add up, for each run, the rows of logits that it was copied to."""
        _, order, starts = self._indices_of_chunk(chunk)
        cells = logits[:, chunk.lead:, self.prefix:].reshape(-1, self.buckets.key.width)
        runs = F.embedding_bag(order, cells, starts, mode='sum')
        if not self.prefix:
            return [runs]
        return [runs, torch.cat([each.sum(-1, keepdim=True) for each in
                                 self._logits_with_prefix(logits, chunk)], 1)]

    def collect(self, sums: list[Tensor], heads: int, lead: int) -> Tensor:
        """Add up runs to look-ups."""
        query, key = self.buckets.query, self.buckets.key
        runs = sums[0].view(query.width, -1, self.patterns.num_patterns, key.width)
        if self.by_key:
            runs = runs.permute(3, 1, 2, 0).contiguous()
        cells = self.patterns.sum_to_buckets(runs).transpose(0, 1)  # heads * rows, columns, n
        cells = cells.reshape(heads, -1, cells.shape[2])
        if not self.prefix:
            return cells
        return torch.cat((F.pad(cells, (0, 0, lead, 0)), sums[1]), 2)

    def _logits_with_prefix(self, logits: Tensor, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """The logits of pairs with a prefix token, (heads, tokens, others): for all others the
        prefix tokens among the tokens of the look-ups, and for the rest the prefix tokens."""
        if self.by_key:
            logits = logits.transpose(1, 2)
        prefix, others = (self.prefix, chunk.lead) if self.by_key else (chunk.lead, self.prefix)
        return logits[:, :prefix], logits[:, prefix:, :others]

    def _indices_of_chunk(self, chunk: Chunk) -> list[Tensor]:
        """The :func:`run_indices` of a chunk."""
        def make() -> list[Tensor]:
            rows = slice(chunk.first_row, chunk.first_row + chunk.num_rows)
            pattern = self.patterns.pattern
            return run_indices(pattern[:, rows] if self.by_key else pattern[rows],
                               self.patterns.num_patterns, chunk.size, self.buckets.query.width,
                               self.by_key)

        return self._indices.get_or_make((chunk.size, chunk.first_row), make)


def run_indices(pattern: Tensor, num_patterns: int, heads: int, columns: int, by_key: bool
                ) -> list[Tensor]:
    """Indices that copy runs to rows of logits, and that add these rows up again. Runs are ordered
    (query column, head, row, pattern), and rows of logits (head, query row, query column, key row).

    Args:
        pattern: (R, S) of the rows that have runs (of queries, or with ``by_key`` of keys) and of
            the other rows.
        num_patterns: the number of patterns.
        heads: heads of the chunk.
        columns: query columns.

    Returns:
        For each row of logits, its run; then for each run in turn the rows of logits that it was
        copied to, and where those of each run begin.
    """
    rows, others = pattern.shape
    number = torch.arange(columns * heads * rows, device=pattern.device)
    number = number.view(columns, heads, rows, 1)
    take = number * num_patterns + pattern  # column, head, row, other row
    take = take.permute((1, 3, 0, 2) if by_key else (1, 2, 0, 3)).contiguous()
    at = torch.arange(take.numel(), device=pattern.device).view(take.shape)
    at = at.permute((2, 0, 3, 1) if by_key else (2, 0, 1, 3))
    order = at.gather(-1, pattern.argsort(dim=1, stable=True).expand(at.shape))
    count = F.one_hot(pattern, num_patterns).sum(1)
    starts = number * others + (count.cumsum(1) - count)
    return [take.flatten(), order.flatten(), starts.flatten()]


class RowPatterns(NamedTuple):
    """How the look-ups of query cells are spread over rows of key cells.

    pattern: (Hq, Hk) long, the pattern of each pair of rows. columns: one-hot (Wq, n, Wk), the
    buckets of the column offset, if those of rows and columns are numbered apart ('product');
    else (Wq, buckets, patterns * Wk), those of both. num_patterns: patterns, P below.
    """

    pattern: Tensor
    columns: Tensor
    num_patterns: int

    def expand_to_runs(self, lookup: Tensor) -> Tensor:
        """Copy the products of queries with each bucket into the runs of the keys that fall there.

        Args:
            lookup: (Wq, M, buckets), those of M queries in each column of the grid.

        Returns:
            (Wq, M, P, Wk): for each of the P patterns, the numbers of a row of keys.
        """
        wq, many, _ = lookup.shape
        runs = torch.bmm(lookup.reshape(wq, -1, self.columns.shape[1]), self.columns)
        return runs.view(wq, many, self.num_patterns, -1)

    def sum_to_buckets(self, runs: Tensor) -> Tensor:
        """The adjoint of :meth:`expand_to_runs`: from (Wq, M, P, Wk) to (Wq, M, buckets)."""
        rows = runs.reshape(len(runs), -1, self.columns.shape[2])
        return torch.bmm(rows, self.columns.transpose(1, 2)).view(*runs.shape[:2], -1)


def row_patterns(buckets: Buckets, dtype: torch.dtype, device: torch.device) -> RowPatterns:
    """The patterns of a pair of grids: which rows of keys see the same buckets.

    Returns:
        Patterns that others share: not to be written to.
    """
    return stored(('row_patterns', buckets, dtype),
                  lambda: _row_patterns(buckets, dtype, device), device)


def _row_patterns(buckets: Buckets, dtype: torch.dtype, device: torch.device) -> RowPatterns:
    # On the CPU: an accelerator would have to be waited for, to know how many patterns there are.
    rows, row_index, cols, col_index = buckets.offsets_and_indices(torch.device('cpu'))
    if buckets.method == 'product':
        axis = 2 * int(buckets.params.beta) + 1
        row_ids, col_ids = (index_function(each, buckets.params) + axis // 2
                            for each in (rows, cols))
        columns = F.one_hot(col_ids[col_index], axis).transpose(1, 2).to(dtype)
        return RowPatterns(row_ids[row_index].to(device), columns.contiguous().to(device), axis)
    table = offset_buckets(buckets.method, rows, cols, buckets.params)
    patterns, which = torch.unique(table, dim=0, return_inverse=True)
    runs = patterns[:, col_index].transpose(0, 1).flatten(1)  # (Wq, P * Wk)
    columns = F.one_hot(runs, buckets.num_offset_buckets).transpose(1, 2).to(dtype).contiguous()
    return RowPatterns(which[row_index].to(device), columns.to(device), patterns.shape[0])
