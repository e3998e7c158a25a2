"""Reading look-ups a row of keys at a time, without an index of all pairs: for long sequences.

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

from mmposenc.functional.buckets import Buckets, index_function, offset_buckets
from mmposenc.functional.grids import CACHE, GridCache

from . import thresholds
from .layout import Chunk, Layout


class RunsByQuery:
    """Reads tables of buckets a whole row of keys at a time, through the look-ups of the queries.
    Keys are :attr:`Layout.filled`; each row of keys that holds prefix tokens counts as one more
    pattern."""

    def __init__(self, buckets: Buckets, layout: Layout, dtype: torch.dtype, device: torch.device
                 ) -> None:
        self.patterns = row_patterns(buckets, dtype, device)
        self.layout, self.width, self.key_width = layout, buckets.query.width, buckets.key.width
        self.prefix_rows = -(-layout.prefix // self.key_width)
        self.num_patterns = self.patterns.num_patterns + self.prefix_rows
        self.pattern = pattern_with_prefix_rows(self.patterns.pattern, self.patterns.num_patterns,
                                                self.prefix_rows)
        self._plans = GridCache(thresholds.INDEX_BYTES)

    def write_numbers_of_pairs(self, lookup: Tensor, chunk: Chunk, out: Tensor) -> None:
        """Copy the number of every pair out of the look-ups.

        Args:
            lookup: (heads, lead + rows * Wq, buckets).
            out: (heads, lead + rows * Wq, keys), contiguous.
        """
        heads, _, channels = lookup.shape
        cells = lookup[:, chunk.lead:].reshape(heads * chunk.num_rows, self.width, channels)
        cells = cells.transpose(0, 1)
        if not self.prefix_rows:
            runs = self.patterns.expand_to_runs(cells.contiguous())
        else:
            n = self.patterns.num_patterns
            runs = lookup.new_empty(self.width, heads * chunk.num_rows, self.num_patterns,
                                    self.key_width)
            runs[:, :, :n] = self.patterns.expand_to_runs(cells[..., :-1].contiguous())
            runs[:, :, n:] = cells[..., -1:, None]
        self._indices_of_chunk(chunk).copy_runs(runs, out)
        out[:, :chunk.lead] = lookup[:, :chunk.lead, -1:]

    def sum_to_lookups(self, logits: Tensor, chunk: Chunk) -> Tensor:
        """The adjoint of :meth:`write_numbers_of_pairs`."""
        heads, n = logits.shape[0], self.patterns.num_patterns
        runs = self._indices_of_chunk(chunk).sums_by_run(logits, self.key_width)
        runs = runs.view(self.width, heads * chunk.num_rows, self.num_patterns, self.key_width)
        cells = self.patterns.sum_to_buckets(runs[:, :, :n]).transpose(0, 1)
        if not self.prefix_rows:
            return cells.reshape(heads, chunk.num_rows * self.width, -1)
        sums = logits.new_zeros(*logits.shape[:2], cells.shape[-1] + 1)
        grid = sums[:, chunk.lead:].unflatten(1, (chunk.num_rows, self.width))
        shape = (heads, chunk.num_rows, self.width, -1)
        grid[..., :-1] = cells.reshape(shape)
        # The weights of keys that only fill up a row are 0, and so are their gradients.
        grid[..., -1] = runs[:, :, n:].sum((2, 3)).t().reshape(shape[:3])
        sums[:, :chunk.lead, -1] = logits[:, :chunk.lead].sum(-1)
        return sums

    def _indices_of_chunk(self, chunk: Chunk) -> RunIndices:
        rows = self.pattern[chunk.first_row:chunk.first_row + chunk.num_rows]
        return self._plans.get_or_make((chunk.size, chunk.first_row), lambda: plan_of_query_runs(
            rows, self.num_patterns, chunk.size, self.width, chunk.lead), RunIndices.tensors)


class RunsByKey:
    """As :class:`RunsByQuery`, but through the look-ups of the keys: each is expanded once for all
    queries."""

    def __init__(self, buckets: Buckets, layout: Layout, dtype: torch.dtype, device: torch.device
                 ) -> None:
        self.patterns = row_patterns(buckets.swapped(), dtype, device)
        self.layout, self.width, self.key = layout, buckets.query.width, buckets.key
        self.prefix_rows = -(-layout.prefix // self.key.width)
        self._plans = GridCache(thresholds.INDEX_BYTES)

    def expand_to_runs(self, lookup: Tensor) -> Tensor:
        """Expand look-ups of keys (heads, keys, buckets) to runs of Wk numbers: first those of
        cells, ordered (query column, head, key row, pattern), then those of the prefix bucket,
        ordered (head, key row)."""
        heads, keys, cells = lookup.shape[0], self.key, self.key.num_cells
        grid = lookup[:, :cells]
        if self.prefix_rows:
            grid = grid[..., :-1]
        by_column = grid.reshape(heads * keys.height, keys.width, -1).transpose(0, 1)
        runs = self.patterns.expand_to_runs(by_column.contiguous()).permute(3, 1, 2, 0)
        runs = runs.reshape(-1, keys.width)
        if not self.prefix_rows:
            return runs
        return torch.cat([runs, lookup[..., -1].reshape(-1, keys.width)])

    def write_numbers_of_pairs(self, runs: Tensor, chunk: Chunk, out: Tensor) -> None:
        """Write the number of every pair to ``out`` (heads, queries, keys), contiguous."""
        self._indices_of_chunk(chunk).copy_runs(runs, out)

    def sum_to_lookups(self, logits: Tensor, chunk: Chunk) -> Tensor:
        """The adjoint of :meth:`write_numbers_of_pairs`."""
        return self._indices_of_chunk(chunk).sums_by_run(logits, self.key.width)

    def sum_to_buckets(self, sums: Tensor) -> Tensor:
        """The adjoint of :meth:`expand_to_runs`: gradients of look-ups (heads, keys, buckets)."""
        keys, n = self.key, self.patterns.num_patterns
        prefix_runs = keys.height + self.prefix_rows if self.prefix_rows else 0
        heads = sums.shape[0] // (self.width * keys.height * n + prefix_runs)
        rows = self.width * heads * keys.height * n
        grid = sums[:rows].view(self.width, heads * keys.height, n, keys.width)
        cells = self.patterns.sum_to_buckets(grid.permute(3, 1, 2, 0).contiguous())
        cells = cells.transpose(0, 1).reshape(heads, keys.num_cells, -1)
        if not self.prefix_rows:
            return cells
        out = cells.new_zeros(heads, self.layout.num_keys, cells.shape[2] + 1)
        out[:, :keys.num_cells, :-1] = cells
        out[..., -1] = sums[rows:].view(heads, -1)
        return out

    def _indices_of_chunk(self, chunk: Chunk) -> RunIndices:
        rows = self.patterns.pattern[:, chunk.first_row:chunk.first_row + chunk.num_rows]
        return self._plans.get_or_make((chunk.size, chunk.first_row), lambda: plan_of_key_runs(
            rows, self.patterns.num_patterns, chunk.size, self.width, self.prefix_rows,
            chunk.lead), RunIndices.tensors)


@dataclass(frozen=True)
class RowPatterns:
    """How the look-ups of query cells are spread over rows of key cells.

    method: 'product' or 'dense'.
    pattern: (Hq, Hk) long, the pattern of each pair of rows.
    columns: one-hot (Wq, n, Wk) buckets of the column offset ('product'), or
        (Wq, buckets, patterns * Wk) of both ('dense').
    num_patterns: patterns, P below.
    """

    method: str
    pattern: Tensor
    columns: Tensor
    num_patterns: int

    def expand_to_runs(self, lookup: Tensor) -> Tensor:
        """Expand rows of look-ups (Wq, M, buckets), of M queries in each column, to runs (Wq, M, P,
        Wk)."""
        wq, many, _ = lookup.shape
        if self.method == 'dense':
            return torch.bmm(lookup, self.columns).view(wq, many, self.num_patterns, -1)
        n = self.num_patterns
        return torch.bmm(lookup.reshape(wq, many * n, n), self.columns).view(wq, many, n, -1)

    def sum_to_buckets(self, runs: Tensor) -> Tensor:
        """The adjoint of :meth:`expand_to_runs`: from (Wq, M, P, Wk) to (Wq, M, buckets)."""
        wq, many, n, wk = runs.shape
        adjoint = self.columns.transpose(1, 2)
        if self.method == 'dense':
            return torch.bmm(runs.reshape(wq, many, n * wk), adjoint)
        return torch.bmm(runs.reshape(wq, many * n, wk), adjoint).view(wq, many, n * n)


def row_patterns(buckets: Buckets, dtype: torch.dtype, device: torch.device) -> RowPatterns:
    """The patterns of a pair of grids: which rows of keys see the same buckets.

    Returns:
        Patterns that others share: not to be written to.
    """
    return CACHE.get_or_make(('row_patterns', buckets, dtype, device),
                             lambda: _row_patterns(buckets, dtype, device),
                             lambda patterns: [patterns.pattern, patterns.columns])


def _row_patterns(buckets: Buckets, dtype: torch.dtype, device: torch.device) -> RowPatterns:
    # On the CPU: an accelerator would have to be waited for, to know how many patterns there are.
    rows, row_index, cols, col_index = buckets.offsets_and_indices(torch.device('cpu'))
    if buckets.method == 'product':
        axis = 2 * int(buckets.params.beta) + 1
        row_ids, col_ids = (index_function(each, buckets.params) + axis // 2
                            for each in (rows, cols))
        columns = F.one_hot(col_ids[col_index], axis).transpose(1, 2).to(dtype)
        return RowPatterns('product', row_ids[row_index].to(device),
                           columns.contiguous().to(device), axis)
    table = offset_buckets(buckets.method, rows, cols, buckets.params)
    patterns, which = torch.unique(table, dim=0, return_inverse=True)
    runs = patterns[:, col_index].transpose(0, 1).flatten(1)  # (Wq, P * Wk)
    columns = F.one_hot(runs, buckets.num_offset_buckets).transpose(1, 2).to(dtype).contiguous()
    return RowPatterns('dense', which[row_index].to(device), columns.to(device), patterns.shape[0])


def pattern_with_prefix_rows(pattern: Tensor, num_patterns: int, extra_rows: int) -> Tensor:
    """Append ``extra_rows`` key rows to patterns (Hq, Hk), each with a new pattern that no other
    row has."""
    further = torch.arange(num_patterns, num_patterns + extra_rows, device=pattern.device)
    return torch.cat([pattern, further.expand(pattern.shape[0], -1)], 1)


@dataclass(frozen=True)
class RunIndices:
    """Index tensors that copy runs to rows of logits, and that add these rows up again.

    Logits lie in rows of Wk numbers ordered (head, query, key row); queries are ``lead`` prefix
    tokens, then (query row, column). take: for each row of logits, its run. order, starts: for each
    run, the rows of logits of cells that took it.
    """

    take: Tensor
    order: Tensor
    starts: Tensor

    def tensors(self) -> list[Tensor]:
        """All index tensors of this object."""
        return [self.take, self.order, self.starts]

    def copy_runs(self, runs: Tensor, out: Tensor) -> None:
        """Copy runs (any shape that ends in Wk) to ``out``, which has the logits."""
        wk = runs.shape[-1]
        torch.index_select(runs.view(-1, wk), 0, self.take, out=out.view(-1, wk))

    def sums_by_run(self, logits: Tensor, wk: int) -> Tensor:
        """Add up, for each run, the rows of logits that it was copied to; returns (number of runs,
        Wk)."""
        return F.embedding_bag(self.order, logits.reshape(-1, wk), self.starts, mode='sum')


def plan_of_query_runs(pattern: Tensor, num_patterns: int, heads: int, columns: int, lead: int = 0
                         ) -> RunIndices:
    """The :class:`RunIndices` for runs that are ordered (column, head, query row, pattern), where
    each query has runs of its own.

    Args:
        pattern: (R, Hk) patterns of the query rows.
        num_patterns: patterns; the last is that of prefix keys, whose runs are constant.
        heads: heads of the chunk.
        columns: query columns.
        lead: prefix queries; they take a constant run.
    """
    num_rows, key_rows = pattern.shape
    g, r, c = _head_row_and_column_numbers(heads, num_rows, columns, pattern.device)
    first_run = ((c * heads + g) * num_rows + r) * num_patterns  # (heads, R, columns)
    take = first_run[..., None] + pattern[:, None]
    constant = g[..., 0] * (num_rows * num_patterns) + num_patterns - 1
    by_pattern, before = _order_and_starts(pattern, num_patterns)
    first_logit = _query_number(g, r, c, lead, num_rows, columns) * key_rows
    order = (first_logit[..., None] + by_pattern[:, None]).permute(2, 0, 1, 3)
    at = ((c[:, None, None] * heads + g[:, :, 0]) * num_rows + r[:, 0]) * key_rows
    return RunIndices(_with_prefix_runs(take, constant.expand(-1, lead * key_rows)),
                      order.flatten(), (at[..., None] + before).flatten())


def plan_of_key_runs(pattern: Tensor, num_patterns: int, heads: int, columns: int,
                     extra_rows: int = 0, lead: int = 0) -> RunIndices:
    """Plan for runs ordered (column, head, key row, pattern), which all query rows share, then
    (head, key row) of the prefix bucket.

    Args:
        pattern: (Hk, R) patterns of key rows against some query rows.
        extra_rows: key rows after those; with prefix tokens only.
    """
    key_rows, num_rows = pattern.shape
    all_rows = key_rows + extra_rows
    g, r, c = _head_row_and_column_numbers(heads, num_rows, columns, pattern.device)
    j = torch.arange(all_rows, device=pattern.device)
    first_run = ((c * heads + g) * key_rows)[..., None] + j[:key_rows]  # (heads, 1, columns, Hk)
    take = first_run * num_patterns + pattern.t()[:, None]
    by_pattern, before = _order_and_starts(pattern, num_patterns)
    order = _query_number(g, by_pattern, 0, lead, num_rows, columns)  # (heads, Hk, R)
    order = ((c[:, None, None, None] + order) * all_rows + j[:key_rows, None]).flatten()
    at = ((c[:, None, None] * heads + g[:, :, 0]) * key_rows + j[:key_rows]) * num_rows
    at = (at[..., None] + before).flatten()
    if not extra_rows:
        return RunIndices(take.flatten(), order, at)
    extra_run = columns * heads * key_rows * num_patterns + g[..., None] * all_rows + j
    extra = extra_run[..., key_rows:].expand(-1, num_rows, columns, -1)
    take = _with_prefix_runs(torch.cat([take, extra], 3),
                             extra_run.expand(-1, lead, 1, -1).reshape(heads, -1))
    further, begin = _prefix_bucket_bags(g, r, c, lead, key_rows, all_rows)
    return RunIndices(take, torch.cat([order, further]), torch.cat([at, order.shape[0] + begin]))


def _prefix_bucket_bags(head: Tensor, row: Tensor, column: Tensor, lead: int, key_rows: int,
                        all_rows: int) -> tuple[Tensor, Tensor]:
    """The rows of logits that use the prefix bucket, for each (head, key row), and where the rows
    of each begin. For cells as keys these are the rows of prefix queries, for prefix keys those of
    all queries. The axes are those of :func:`_head_row_and_column_numbers`."""
    queries = lead + row.shape[0] * column.shape[0]
    first = head[:, 0] * queries  # (heads, 1)
    j = torch.arange(all_rows, device=head.device)
    of_prefix = first[..., None] + torch.arange(lead, device=head.device)
    of_all = first[..., None] + torch.arange(queries, device=head.device)
    cells = of_prefix * all_rows + j[:key_rows, None]  # (heads, Hk, lead)
    others = of_all * all_rows + j[key_rows:, None]  # (heads, extra rows, queries)
    rows = torch.cat([cells.flatten(1), others.flatten(1)], 1)
    # Computed there, because the host would wait for a list to be copied to a GPU.
    sizes = (lead + (j >= key_rows) * (queries - lead)).repeat(head.shape[0])
    return rows.flatten(), sizes.cumsum(0) - sizes


def _head_row_and_column_numbers(heads: int, num_rows: int, columns: int, device: torch.device
                                 ) -> tuple[Tensor, Tensor, Tensor]:
    """Index ranges that broadcast with each other: heads (heads, 1, 1), query rows (R, 1) and
    columns (columns,)."""
    return (torch.arange(heads, device=device)[:, None, None],
            torch.arange(num_rows, device=device)[:, None], torch.arange(columns, device=device))


def _order_and_starts(pattern: Tensor, num_patterns: int) -> tuple[Tensor, Tensor]:
    """For each row of ``pattern``, its entries sorted by pattern, and where the entries of each
    pattern begin."""
    count = F.one_hot(pattern, num_patterns).sum(1)
    return pattern.argsort(dim=1, stable=True), count.cumsum(1) - count


def _with_prefix_runs(take: Tensor, lead: Tensor) -> Tensor:
    """One flat index: the runs of prefix queries (heads, n), then those of cells (heads, R,
    columns, Hk)."""
    return torch.cat([lead, take.flatten(1)], 1).flatten() if lead.shape[1] else take.flatten()


def _query_number(head: Tensor, row: Tensor, column: Tensor | int, lead: int, num_rows: int,
                  columns: int) -> Tensor:
    """The index of a query among all queries of the chunk."""
    return head * (lead + num_rows * columns) + lead + row * columns + column
