"""The writer of a bias by the offset of two cells (Swin, iRPE's bias mode, log CPB, ALiBi)."""
from __future__ import annotations

from torch import Tensor

from mmposenc.functional.grids import Grid

from ..terms import Problem
from ..vector_terms import OffsetBias
from .products import add_sum, add_summed_by_head
from .writers import ChunkWork, Writer, copy_or_add


class OffsetBiasWriter(Writer):
    """Adds a bias by offset, row by row, from slices of one tensor. Its inputs are ``runs`` (heads
    or 1, Wq, row offsets, Wk), the bias of every pair of columns at each row offset, key minus
    query, and that of pairs with a prefix token (heads or 1, 3), if there is one.

    All keys of a row of queries are one slice of the runs; for the next row of queries the slice
    begins one row offset earlier.
    """

    whole_rows = True

    def __init__(self, term: OffsetBias, problem: Problem) -> None:
        dtype, self.query, self.key = problem.q.dtype, term.query, term.key
        runs = offset_runs(term.table.to(dtype), term.query, term.key)
        self.inputs = (runs,) if term.prefix_bias is None or not term.prefix else (
            runs, term.prefix_bias.to(dtype))
        self.prefix = term.prefix

    def _run_and_logit_slices(self, work: ChunkWork, runs: Tensor,
                              logits: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each row of queries, its slice of the runs (heads or 1, Wq, Hk, Wk) and its part of
        the logits, which has the images in front."""
        chunk, stride, step = work.chunk, int(self.query.stride_h), int(self.key.stride_h)
        runs = runs[chunk.heads] if runs.shape[0] > 1 else runs
        cells = chunk.by_image(logits)[..., self.prefix:].unflatten(-1, self.key.hw)
        pairs = []
        for row in range(chunk.num_rows):
            first = stride * (self.query.height - 1 - chunk.first_row - row)
            last = first + step * (self.key.height - 1) + 1
            at = chunk.lead + row * self.query.width
            pairs.append((runs[:, :, first:last:step], cells[:, :, at:at + self.query.width]))
        return pairs

    def _logits_with_prefix(self, work: ChunkWork, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three parts of the logits (images, heads, ...) with a prefix token: prefix to cell,
        cell to prefix, prefix to prefix."""
        logits, lead, prefix = work.chunk.by_image(logits), work.chunk.lead, self.prefix
        return (logits[:, :, :lead, prefix:], logits[:, :, lead:, :prefix],
                logits[:, :, :lead, :prefix])

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write a slice of the runs for each row of queries."""
        for source, target in self._run_and_logit_slices(work, self.inputs[0], logits):
            copy_or_add(source, target, add)
        for kind, target in enumerate(self._logits_with_prefix(work, logits)):
            if not add:
                target.zero_()
            if len(self.inputs) > 1:
                bias = self.inputs[1]
                bias = bias[work.chunk.heads] if bias.shape[0] > 1 else bias
                target += bias[:, kind, None, None]

    def add_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Add the gradient of each row of queries to its slice of the runs."""
        for total, part in self._run_and_logit_slices(work, self.grads[0], grad):
            shared = total.shape[0] < part.shape[1]
            add_sum(total, part.sum(1, keepdim=True) if shared else part)
        if len(self.inputs) > 1:
            for kind, part in enumerate(self._logits_with_prefix(work, grad)):
                add_summed_by_head(self.grads[1][:, kind], work.chunk, part.sum((2, 3)).flatten())


def offset_runs(table: Tensor, query: Grid, key: Grid) -> Tensor:
    """Numbers of every pair of columns at each row offset, as slices of the table.

    Args:
        table: (heads, Dr, Dc) by query minus key, strides whole.

    Returns:
        (heads, Wq, Dr, Wk), row offsets by key minus query, ascending.
    """
    stride, step = int(query.stride_w), int(key.stride_w)
    # In the order key minus query, the bias of the last query column begins at the first offset,
    # and that of each column before it ``stride`` offsets later.
    lines = table.flip(1, 2).unfold(2, step * (key.width - 1) + 1, stride)
    return lines[..., ::step].flip(2).transpose(1, 2).contiguous()
