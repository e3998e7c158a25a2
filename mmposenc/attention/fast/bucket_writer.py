"""The writer of tables that are read by the bucket of a pair (iRPE, Shaw, Huang).

The products of some tokens with the vectors of a table are their *look-ups*, (tokens, buckets). A
chunk copies the numbers of its pairs out of them, and sums up numbers of pairs by bucket. There are
two ways to do that: an index of all pairs on short sequences (:class:`~.pair_index.PairIndex`), and
whole rows of keys on long ones (:class:`~.runs.Runs`), where an index would be twice as large as
the logits.
"""
from __future__ import annotations

from typing import Protocol

from torch import Tensor

from ..terms import Problem, Table, TableByKey
from . import thresholds
from .layout import Chunk
from .pair_index import PairIndex
from .products import add_table_grad, add_times_table, times_table, with_heads
from .runs import Runs
from .writers import ChunkWork, Writer


class Reader(Protocol):
    """A way to read look-ups. :meth:`collect` is the adjoint of :meth:`expand`, and :meth:`sums`
    that of :meth:`write`."""

    def expand(self, lookup: Tensor, lead: int) -> list[Tensor]:
        """Bring look-ups (heads, tokens, buckets), of which the first ``lead`` tokens are prefix
        tokens, into the form that :meth:`write` reads."""

    def write(self, expanded: list[Tensor], work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the number of every pair to logits (heads, queries, keys), or add it."""

    def sums(self, logits: Tensor, chunk: Chunk) -> list[Tensor]:
        """Sum up the numbers of pairs, in the form of :meth:`expand`."""

    def collect(self, sums: list[Tensor], heads: int, lead: int) -> Tensor:
        """Return what :meth:`sums` has summed up as (heads, tokens, buckets)."""


class BucketWriter(Writer):
    """Writes x[i] . table[b(i, j)], where x are the queries, or the keys at j. The input is the
    table (heads or 1, head_dims, buckets).

    A table on values, sum_j a_ij table[b(i, j)], is the reverse with the same table: sums of the
    weights, times the table, are the output, which is handed over as the gradient of x in the
    forward pass. In the backward pass the gradient of the output is x, and what is written is the
    gradient of the weights.
    """

    def __init__(self, term: Table, problem: Problem) -> None:
        q, buckets, self.by_key = problem.q, term.buckets, isinstance(term, TableByKey)
        scale = 1.0 if self.by_key or term.on_values else problem.scale
        table = (with_heads(term.table) * scale).to(q.dtype)
        self.inputs = (table.transpose(1, 2) if term.on_values else table,)
        with_values = any(each.on_values for each in problem.terms)
        self.whole_rows = buckets.method != 'sequence' and problem.pairs >= (
            thresholds.RUNS_WITH_VALUES_FROM if with_values else thresholds.RUNS_FROM)
        kind = Runs if self.whole_rows else PairIndex
        self.reader: Reader = kind(buckets, self.by_key, q.dtype, q.device)
        self.prefix = buckets.prefix

    def before_chunks(self, work: ChunkWork) -> None:
        """Expand the look-ups of all keys."""
        if self.by_key:
            self._sums: list[Tensor] | None = None
            self._expanded = self.reader.expand(
                times_table(work.k, self.inputs[0], work.chunk), self.prefix)

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the look-up of every pair."""
        expanded = self._expanded if self.by_key else self.reader.expand(
            times_table(work.q, self.inputs[0], work.chunk), work.chunk.lead)
        self.reader.write(expanded, work, logits, add)

    def add_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Sum up the numbers of these pairs; sums of keys are complete after all queries."""
        sums = self.reader.sums(grad, work.chunk)
        if not self.by_key:
            self._add_sums(work, work.q, work.grad_q, sums, work.chunk.lead)
        elif self._sums is None:
            self._sums = sums
        else:
            for total, each in zip(self._sums, sums, strict=True):
                total += each

    def after_chunks(self, work: ChunkWork) -> None:
        """Add what is summed up for all keys."""
        if self.by_key:
            assert self._sums is not None
            self._add_sums(work, work.k, work.grad_k, self._sums, self.prefix)

    def _add_sums(self, work: ChunkWork, x: Tensor, grad_x: Tensor, sums: list[Tensor], lead: int
                  ) -> None:
        """Add to the gradients of x and of the table; either may not be asked for."""
        lookup = self.reader.collect(sums, work.chunk.size, lead)
        if grad_x.numel():
            add_times_table(grad_x, lookup, self.inputs[0].transpose(1, 2), work.chunk)
        if self.grads:
            add_table_grad(self.grads[0], work.chunk, x, lookup)
