"""The writer of a term of the key's row and one of its column."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..terms import Problem
from ..vector_terms import AxisHalves
from .writers import ChunkWork, Writer


class AxisWriter(Writer):
    """Writes products of queries with the vectors of the key's row (B, heads, Lq, Hk) and of its
    column (B, heads, Lq, Wk), and those of cells with prefix keys (B, heads, Lq, 1). Prefix queries
    need no terms: softmax ignores what is added to all keys of a query."""

    def __init__(self, term: AxisHalves, problem: Problem) -> None:
        rows, cols, prefix = term.products(problem.q, problem.scale)
        self.inputs = (rows, cols) if prefix is None else (rows, cols, F.pad(
            prefix[:, :, term.prefix:], (0, 0, term.prefix, 0)))
        self.prefix, self.key_hw = term.prefix, (rows.shape[-1], cols.shape[-1])

    def _grid_and_prefix(self, work: ChunkWork, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of cells as a grid (images, heads, queries, Hk, Wk), and those of prefix keys.
        """
        logits = work.chunk.by_image(logits)
        return logits[..., self.prefix:].unflatten(-1, self.key_hw), logits[..., :self.prefix]

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the sum of the products with the key's row and column."""
        rows, cols, *others = map(work.chunk.part_of, self.inputs)
        grid, prefix = self._grid_and_prefix(work, logits)
        if add:
            grid += rows[..., None]
            grid += cols[..., None, :]
        else:
            torch.add(rows[..., None], cols[..., None, :], out=grid)
            prefix.zero_()
        if others:
            prefix += others[0]

    def add_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Sum up the gradients of the products of these queries."""
        rows, cols, *others = map(work.chunk.part_of, self.grads)
        grid, prefix = self._grid_and_prefix(work, grad)
        torch.sum(grid, -1, dtype=rows.dtype, out=rows)
        torch.sum(grid, -2, dtype=cols.dtype, out=cols)
        if others:
            torch.sum(prefix, -1, keepdim=True, dtype=rows.dtype, out=others[0])
