"""Terms of contextual iRPE for some query rows at a time: see :mod:`.chunked`."""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .row_patterns import (
    RowPatterns,
    Spread,
    shared_plan,
    spread_plan,
    transposed_plan,
    with_prefix,
)

#: Elements of all index tensors that one call keeps.
MAX_PLAN_ELEMENTS = 1024 * 1024


class Layout(NamedTuple):
    """Shapes of one call.

    height, width: query rows and columns, behind ``prefix`` tokens. key_height, key_width: key
    rows and columns. Keys are those cells, then ``extra_rows`` rows of as many cells, which start
    with the prefix tokens and end in fill.
    """

    height: int
    width: int
    key_height: int
    key_width: int
    prefix: int

    @property
    def extra_rows(self) -> int:
        """Rows of keys that hold the prefix tokens."""
        return -(-self.prefix // self.key_width)

    @property
    def num_keys(self) -> int:
        """Where the fill starts."""
        return self.key_height * self.key_width + self.prefix

    @property
    def all_key_rows(self) -> int:
        """Rows of keys with those of the prefix."""
        return self.key_height + self.extra_rows


class Chunk(NamedTuple):
    """Some heads (of all images) and some query rows; ``lead`` prefix tokens come before the first.
    """

    heads: slice
    first_row: int
    num_rows: int
    lead: int

    @property
    def num_heads(self) -> int:
        """Heads in this chunk."""
        return int(self.heads.stop - self.heads.start)


class _Plans:
    """Index tensors of chunks, kept for the next heads within one call, up to a size."""

    def __init__(self) -> None:
        self._plans: dict[tuple[int, ...], Spread] = {}
        self._size = 0

    def get(self, key: tuple[int, ...], make: Callable[[], Spread]) -> Spread:
        """The plan of this key."""
        if key not in self._plans:
            if self._size > MAX_PLAN_ELEMENTS:
                self._plans.clear()
                self._size = 0
            plan = self._plans[key] = make()
            self._size += plan.take.numel() + plan.order.numel() + plan.starts.numel()
        return self._plans[key]


class KeySide:
    """Terms that a query reads by its own bucket b(i, j): tables on keys and on values."""

    def __init__(self, patterns: RowPatterns, layout: Layout) -> None:
        self.patterns = patterns
        self.layout = layout
        self.all_patterns = patterns.num_patterns + layout.extra_rows
        self.pattern = with_prefix(patterns.pattern, patterns.num_patterns, layout.extra_rows)
        self._plans = _Plans()

    def plan(self, chunk: Chunk) -> Spread:
        """Index tensors of a chunk."""
        rows = self.pattern[chunk.first_row:chunk.first_row + chunk.num_rows]
        return self._plans.get(
            (chunk.num_heads, chunk.first_row, chunk.num_rows),
            lambda: spread_plan(rows, self.all_patterns, chunk.num_heads, self.layout.width,
                                chunk.lead))

    def fill(self, x: Tensor, table: Tensor, chunk: Chunk, out: Tensor) -> None:
        """Write (x @ table)[bucket] to ``out``; for prefix queries the same number to all keys,
        which softmax and its backward ignore.

        Args:
            x: (heads, lead + R * Wq, head_dims).
            table: (head_dims, channels), or with heads in front.
            out: (heads, lead + R * Wq, keys).
        """
        width = self.layout.width
        lookup = torch.matmul(x, table)
        heads, _, channels = lookup.shape
        lookup = lookup[:, chunk.lead:].reshape(heads * chunk.num_rows, width, channels)
        lookup = lookup.transpose(0, 1)
        if not self.layout.extra_rows:
            runs = self.patterns.expand(lookup.contiguous())
        else:
            n = self.patterns.num_patterns
            runs = lookup.new_empty(width, heads * chunk.num_rows, self.all_patterns,
                                    self.layout.key_width)
            runs[:, :, :n] = self.patterns.expand(lookup[..., :-1].contiguous())
            runs[:, :, n:] = lookup[..., -1:, None]
        self.plan(chunk).spread(runs, out)

    def sums(self, logits: Tensor, chunk: Chunk, total: float) -> Tensor:
        """The adjoint: (heads, lead + R * Wq, keys) to sums by bucket (heads, lead + R * Wq,
        channels).

        Args:
            total: sum over the keys, for prefix queries: 1 for weights, 0 for their gradient.
        """
        width, key_width = self.layout.width, self.layout.key_width
        heads, n = chunk.num_heads, self.patterns.num_patterns
        runs = self.plan(chunk).sums(logits, key_width)
        runs = runs.view(width, heads * chunk.num_rows, self.all_patterns, key_width)
        cells = self.patterns.contract(runs[:, :, :n]).transpose(0, 1)
        if not self.layout.extra_rows:
            return cells.reshape(heads, chunk.num_rows * width, -1)
        sums = logits.new_zeros(*logits.shape[:2], cells.shape[-1] + 1)
        grid = sums[:, chunk.lead:].unflatten(1, (chunk.num_rows, width))  # type: ignore[no-untyped-call]
        shape = (heads, chunk.num_rows, width, -1)
        grid[..., :-1] = cells.reshape(shape)
        # Fill keys have weight 0, and so has their gradient.
        grid[..., -1] = runs[:, :, n:].sum((2, 3)).t().reshape(shape[:3])
        sums[:, :chunk.lead, -1] = total
        return sums


class QuerySide:
    """Term that a key reads by its own bucket b(j, i): the table on queries.

    Runs must go along the keys here too, so look-ups of the keys are expanded along the query
    columns for each pattern and then turned around; (Wq, Hk, P, Wk) numbers for a head, which does
    not grow with the query rows.
    """

    def __init__(self, patterns: RowPatterns, layout: Layout) -> None:
        self.patterns = patterns  # of keys against queries
        self.layout = layout
        self._plans = _Plans()

    def runs(self, keys: Tensor, table: Tensor) -> Tensor:
        """All runs of some heads.

        Args:
            keys: (heads, keys, head_dims).
            table: (head_dims, channels), or with heads in front.

        Returns:
            (rows, Wk): (Wq, heads, Hk, P) for pairs of cells, then, if there are prefix tokens,
            (heads, all key rows) of their bucket.
        """
        lay = self.layout
        lookup = torch.matmul(keys, table)
        heads, _, channels = lookup.shape
        cells = lay.key_height * lay.key_width
        lookup_cells = lookup[:, :cells, :channels - (lay.extra_rows > 0)]
        by_column = lookup_cells.reshape(heads * lay.key_height, lay.key_width, -1).transpose(0, 1)
        grid = self.patterns.expand(by_column.contiguous()).permute(3, 1, 2, 0)
        if not lay.extra_rows:
            return grid.reshape(-1, lay.key_width)
        extra = lookup[..., -1].reshape(-1, lay.key_width)
        return torch.cat([grid.reshape(-1, lay.key_width), extra])

    def lookup_sums(self, runs: Tensor, heads: int) -> Tensor:
        """The adjoint of expanding: gradients of runs to those of (heads, keys, channels)."""
        lay, n = self.layout, self.patterns.num_patterns
        rows = lay.width * heads * lay.key_height * n
        grid = runs[:rows].view(lay.width, heads * lay.key_height, n, lay.key_width)
        sums = self.patterns.contract(grid.permute(3, 1, 2, 0).contiguous())
        sums = sums.transpose(0, 1).reshape(heads, lay.key_height * lay.key_width, -1)
        if not lay.extra_rows:
            return sums
        cells = sums.shape[1]
        out = sums.new_zeros(heads, lay.all_key_rows * lay.key_width, sums.shape[2] + 1)
        out[:, :cells, :-1] = sums
        out[..., -1] = runs[rows:].view(heads, -1)
        return out

    def plan(self, chunk: Chunk) -> Spread:
        """Index tensors of a chunk."""
        rows = self.patterns.pattern[:, chunk.first_row:chunk.first_row + chunk.num_rows]
        return self._plans.get(
            (chunk.num_heads, chunk.first_row, chunk.num_rows),
            lambda: transposed_plan(rows, self.patterns.num_patterns, chunk.num_heads,
                                    self.layout.width, self.layout.extra_rows, chunk.lead))


class OffsetSide:
    """A bias that depends on the offset alone: runs (heads or 1, Wq, P, Wk), shared by images."""

    def __init__(self, pattern: Tensor, num_patterns: int, layout: Layout, heads: int) -> None:
        """``pattern`` (Hq, Hk): distinct row offset of each pair of rows."""
        self.layout = layout
        self.heads = heads
        self.all_patterns = num_patterns + layout.extra_rows
        self.pattern = with_prefix(pattern, num_patterns, layout.extra_rows)
        self._plans = _Plans()

    def plan(self, chunk: Chunk) -> Spread:
        """Index tensors of a chunk."""
        rows = self.pattern[chunk.first_row:chunk.first_row + chunk.num_rows]
        return self._plans.get(
            (chunk.heads.start % self.heads, chunk.num_heads, chunk.first_row, chunk.num_rows),
            lambda: shared_plan(rows, self.all_patterns, self._which(chunk), self.layout.width,
                                chunk.lead))

    def _which(self, chunk: Chunk) -> Tensor:
        """Head of the runs for each head of the chunk."""
        return torch.arange(chunk.heads.start, chunk.heads.stop) % self.heads

    def add_sums(self, logits: Tensor, chunk: Chunk, total: Tensor) -> None:
        """Add the sums of logits over images and query rows to ``total``, the runs' gradient."""
        sums = self.plan(chunk).sums(logits, self.layout.key_width).view(-1, *total.shape[1:])
        if self.heads == 1:
            total[0] += sums.sum(0)
        else:
            total.index_add_(0, self._which(chunk), sums)


class Sides(NamedTuple):
    """What the terms of one attention need to know about its grids; None where there is no term."""

    layout: Layout
    on_keys: KeySide | None = None
    on_queries: QuerySide | None = None
    on_offsets: OffsetSide | None = None
