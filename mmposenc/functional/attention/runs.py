"""Reading look-ups a row of keys at a time, without an index of all pairs: for long sequences."""
from __future__ import annotations

import torch
from torch import Tensor

from ..buckets import Buckets
from .layout import Kept, Layout, Piece
from .row_patterns import Spread, row_patterns, spread_plan, transposed_plan, with_prefix


class Runs:
    """Buckets of cells in whole rows of keys, read by the queries' look-ups. Keys are
    :attr:`Layout.filled`; each row of them that holds prefix tokens is one more pattern."""

    def __init__(self, buckets: Buckets, layout: Layout, dtype: torch.dtype, device: torch.device
                 ) -> None:
        self.patterns = row_patterns(buckets, dtype, device)
        self.layout, self.width, self.key_width = layout, buckets.query.width, buckets.key.width
        self.prefix_rows = -(-layout.prefix // self.key_width)
        self.num_patterns = self.patterns.num_patterns + self.prefix_rows
        self.pattern = with_prefix(self.patterns.pattern, self.patterns.num_patterns,
                                   self.prefix_rows)
        self._plans = Kept[Spread]()

    def expand(self, lookup: Tensor) -> Tensor:
        """Nothing to do: a piece expands the look-ups of its own queries."""
        return lookup

    def read(self, lookup: Tensor, piece: Piece, out: Tensor) -> None:
        """Write the number of every pair.

        Args:
            lookup: (heads, lead + rows * Wq, buckets).
            out: (heads, lead + rows * Wq, keys), contiguous.
        """
        heads, _, channels = lookup.shape
        cells = lookup[:, piece.lead:].reshape(heads * piece.num_rows, self.width, channels)
        cells = cells.transpose(0, 1)
        if not self.prefix_rows:
            runs = self.patterns.expand(cells.contiguous())
        else:
            n = self.patterns.num_patterns
            runs = lookup.new_empty(self.width, heads * piece.num_rows, self.num_patterns,
                                    self.key_width)
            runs[:, :, :n] = self.patterns.expand(cells[..., :-1].contiguous())
            runs[:, :, n:] = cells[..., -1:, None]
        self._plan(piece).spread(runs, out)
        out[:, :piece.lead] = lookup[:, :piece.lead, -1:]

    def sums(self, logits: Tensor, piece: Piece) -> Tensor:
        """The adjoint of :meth:`read`."""
        heads, n = logits.shape[0], self.patterns.num_patterns
        runs = self._plan(piece).sums(logits, self.key_width)
        runs = runs.view(self.width, heads * piece.num_rows, self.num_patterns, self.key_width)
        cells = self.patterns.contract(runs[:, :, :n]).transpose(0, 1)
        if not self.prefix_rows:
            return cells.reshape(heads, piece.num_rows * self.width, -1)
        sums = logits.new_zeros(*logits.shape[:2], cells.shape[-1] + 1)
        grid = sums[:, piece.lead:].unflatten(1, (piece.num_rows, self.width))  # type: ignore[no-untyped-call]
        shape = (heads, piece.num_rows, self.width, -1)
        grid[..., :-1] = cells.reshape(shape)
        # Keys that fill up have weight 0, and so has their gradient.
        grid[..., -1] = runs[:, :, n:].sum((2, 3)).t().reshape(shape[:3])
        sums[:, :piece.lead, -1] = logits[:, :piece.lead].sum(-1)
        return sums

    def contract(self, sums: Tensor) -> Tensor:
        """The adjoint of :meth:`expand`."""
        return sums

    def _plan(self, piece: Piece) -> Spread:
        rows = self.pattern[piece.first_row:piece.first_row + piece.num_rows]
        return self._plans.get((piece.size, piece.first_row), lambda: spread_plan(
            rows, self.num_patterns, piece.size, self.width, piece.lead), Spread.numel)


class RunsByKey:
    """The same, read by the keys' look-ups: each is expanded once for all queries."""

    def __init__(self, buckets: Buckets, layout: Layout, dtype: torch.dtype, device: torch.device
                 ) -> None:
        self.patterns = row_patterns(buckets.swapped(), dtype, device)
        self.layout, self.width, self.key = layout, buckets.query.width, buckets.key
        self.prefix_rows = -(-layout.prefix // self.key.width)
        self._plans = Kept[Spread]()

    def expand(self, lookup: Tensor) -> Tensor:
        """Runs of the cells' keys (query column, head, key row, pattern) of Wk numbers, then the
        prefix bucket (head, key row); of look-ups (heads, keys, buckets)."""
        heads, keys, cells = lookup.shape[0], self.key, self.key.num_cells
        grid = lookup[:, :cells]
        if self.prefix_rows:
            grid = grid[..., :-1]
        by_column = grid.reshape(heads * keys.height, keys.width, -1).transpose(0, 1)
        runs = self.patterns.expand(by_column.contiguous()).permute(3, 1, 2, 0)
        runs = runs.reshape(-1, keys.width)
        if not self.prefix_rows:
            return runs
        return torch.cat([runs, lookup[..., -1].reshape(-1, keys.width)])

    def read(self, runs: Tensor, piece: Piece, out: Tensor) -> None:
        """Write the number of every pair to ``out`` (heads, queries, keys), contiguous."""
        self._plan(piece).spread(runs, out)

    def sums(self, logits: Tensor, piece: Piece) -> Tensor:
        """The adjoint of :meth:`read`."""
        return self._plan(piece).sums(logits, self.key.width)

    def contract(self, sums: Tensor) -> Tensor:
        """The adjoint of :meth:`expand`: gradients of look-ups (heads, keys, buckets)."""
        keys, n = self.key, self.patterns.num_patterns
        prefix_runs = keys.height + self.prefix_rows if self.prefix_rows else 0
        heads = sums.shape[0] // (self.width * keys.height * n + prefix_runs)
        rows = self.width * heads * keys.height * n
        grid = sums[:rows].view(self.width, heads * keys.height, n, keys.width)
        cells = self.patterns.contract(grid.permute(3, 1, 2, 0).contiguous())
        cells = cells.transpose(0, 1).reshape(heads, keys.num_cells, -1)
        if not self.prefix_rows:
            return cells
        out = cells.new_zeros(heads, self.layout.num_keys, cells.shape[2] + 1)
        out[:, :keys.num_cells, :-1] = cells
        out[..., -1] = sums[rows:].view(heads, -1)
        return out

    def _plan(self, piece: Piece) -> Spread:
        rows = self.patterns.pattern[:, piece.first_row:piece.first_row + piece.num_rows]
        return self._plans.get((piece.size, piece.first_row), lambda: transposed_plan(
            rows, self.patterns.num_patterns, piece.size, self.width, self.prefix_rows,
            piece.lead), Spread.numel)
