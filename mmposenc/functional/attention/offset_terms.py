"""A bias by the offset of two cells (Swin, iRPE's bias mode, log CPB, ALiBi)."""
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..grids import Grid
from ..offsets import grid_offsets, pair_places, with_prefix
from .layout import Layout
from .terms import DenseBias, ScoreMod, Term
from .writers import LogitWriter, Work, Writer


@dataclass(frozen=True, eq=False)
class OffsetBias(Term):
    """bias[head, row offset, column offset] of two cells.

    Args:
        table: (heads or 1, Dr, Dc), by the distinct offsets of :func:`~..offsets.grid_offsets`.
        query, key: the grids.
        prefix_bias: (heads or 1, 3) for prefix to cell, cell to prefix and prefix to prefix; None
            adds nothing there.
        prefix: tokens in front of either grid.
    """

    table: Tensor
    query: Grid
    key: Grid
    prefix_bias: Tensor | None = None
    prefix: int = 0

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        _, row_index, _, col_index = grid_offsets(self.query, self.key, q.device)
        cells = spread_offsets(self.table, row_index, col_index)
        if not self.prefix:
            return cells[None]
        if self.prefix_bias is None:
            return F.pad(cells, (self.prefix, 0, self.prefix, 0))[None]
        (heads, len_q, len_k), p = cells.shape, self.prefix
        to_cell, from_cell, between = self.prefix_bias.to(cells.dtype)[..., None, None].unbind(1)
        heads = max(heads, self.prefix_bias.shape[0])
        top = torch.cat((between.expand(heads, p, p), to_cell.expand(heads, p, len_k)), 2)
        below = torch.cat((from_cell.expand(heads, len_q, p), cells.expand(heads, -1, -1)), 2)
        return torch.cat((top, below), 1)[None]

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`. Grids whose strides are no whole numbers have no common offsets, and
        short sequences rows too short for slices: there the bias of all pairs is added."""
        strides = (self.query.stride_h, self.key.stride_h, self.query.stride_w, self.key.stride_w)
        if not long or any(stride != int(stride) for stride in strides):
            return DenseBias(self.dense(q, k)).writer(q, k, layout, scale, long)
        runs = offset_runs(self.table.to(q.dtype), self.query, self.key)
        prefix = None if self.prefix_bias is None or not self.prefix else (
            self.prefix_bias.to(q.dtype))
        return ShiftWriter(runs, prefix, layout)

    def score_mod(self, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
        """See :class:`Term`."""
        place, behind = pair_places(self.query, self.key, self.prefix, q.device)
        table, prefix_bias = self.table.flatten(1), self.prefix_bias
        table = with_prefix(
            table, table.new_zeros(1, 3) if prefix_bias is None else prefix_bias, behind)
        return lambda b, h, i, j: table[h if table.shape[0] > 1 else h * 0, place(i, j)]


class ShiftWriter(LogitWriter):
    """A bias by offset: runs (heads or 1, Wq, row offsets, Wk) of numbers that pairs of columns
    have at each row offset, key minus query, and (heads or 1, 3) for pairs with a prefix token.

    All keys of a row of queries are then one slice of the runs: that of the next row begins a row
    further up.
    """

    whole_rows = True

    def __init__(self, runs: Tensor, prefix: Tensor | None, layout: Layout) -> None:
        self.inputs = (runs,) if prefix is None else (runs, prefix)
        self.layout = layout
        assert layout.query is not None and layout.key is not None
        self.height, self.width = layout.query.hw
        self.stride, self.step = int(layout.query.stride_h), int(layout.key.stride_h)

    def _rows(self, work: Work, runs: Tensor, logits: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each row of queries its part of the runs (heads or 1, Wq, Hk, Wk), and of the logits
        with images in front."""
        assert self.layout.key is not None
        piece, key = work.piece, self.layout.key
        runs = runs[piece.heads] if runs.shape[0] > 1 else runs
        cells: Tensor = piece.by_image(logits)[..., self.layout.cells].unflatten(  # type: ignore[no-untyped-call]
            -1, key.hw)
        pairs = []
        for row in range(piece.num_rows):
            first = self.stride * (self.height - 1 - piece.first_row - row)
            last = first + self.step * (key.height - 1) + 1
            at = piece.lead + row * self.width
            pairs.append((runs[:, :, first:last:self.step], cells[:, :, at:at + self.width]))
        return pairs

    def _with_prefix(self, work: Work, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (images, heads, ...) of prefix to cell, cell to prefix, prefix to prefix."""
        logits, lead = work.piece.by_image(logits), work.piece.lead
        keys = self.layout.prefix_keys
        return (logits[:, :, :lead, self.layout.cells], logits[:, :, lead:, keys],
                logits[:, :, :lead, keys])

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        for source, target in self._rows(work, self.inputs[0], logits):
            if add:
                target += source
            else:
                target.copy_(source)
        kinds = self._with_prefix(work, logits)
        for kind, target in enumerate(kinds):
            if not add:
                target.zero_()
            if len(self.inputs) > 1:
                bias = self.inputs[1]
                bias = bias[work.piece.heads] if bias.shape[0] > 1 else bias
                target += bias[:, kind, None, None]

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base."""
        for total, part in self._rows(work, self.grads[0], grad):
            part = part[0] if part.shape[0] == 1 else part.sum(0)
            total += part.sum(0, keepdim=True) if total.shape[0] < part.shape[0] else part
        if len(self.inputs) > 1:
            total = self.grads[1]
            total = total[work.piece.heads] if total.shape[0] > 1 else total
            for kind, part in enumerate(self._with_prefix(work, grad)):
                sums = part.sum((0, 2, 3))
                total[:, kind] += sums if total.shape[0] > 1 else sums.sum()


def spread_offsets(table: Tensor, row_index: Tensor, col_index: Tensor) -> Tensor:
    """Numbers of every pair out of a table of offsets, an axis at a time.

    Args:
        table: (heads, rows, cols).
        row_index: (Hq, Hk) row of the table for each pair of grid rows.
        col_index: (Wq, Wk) likewise.

    Returns:
        (heads, Hq * Wq, Hk * Wk). No index of that size is built: columns are picked first, while
        rows are few, then whole runs of Wk are copied.
    """
    (hq, hk), (wq, wk), heads = row_index.shape, col_index.shape, table.shape[0]
    by_col = table.index_select(2, col_index.flatten()).view(heads, -1, wq, wk)
    runs = by_col.transpose(1, 2).reshape(heads, -1, wk)  # (heads, Wq * rows, Wk)
    starts = torch.arange(wq, device=table.device)[:, None] * table.shape[1]
    which = row_index[:, None, :] + starts
    full: Tensor = runs.index_select(1, which.flatten()).view(heads, hq * wq, hk * wk)
    return full


def offset_runs(table: Tensor, query: Grid, key: Grid) -> Tensor:
    """Numbers of every pair of columns at each row offset, as slices of the table.

    Args:
        table: (heads, Dr, Dc) by query minus key, strides whole.

    Returns:
        (heads, Wq, Dr, Wk), row offsets by key minus query, ascending.
    """
    stride, step = int(query.stride_w), int(key.stride_w)
    # By key minus query, the numbers of the last query column begin at the first offset, and those
    # of each column before it a stride further up.
    lines = table.flip(1, 2).unfold(2, step * (key.width - 1) + 1, stride)
    return lines[..., ::step].flip(2).transpose(1, 2).contiguous()
