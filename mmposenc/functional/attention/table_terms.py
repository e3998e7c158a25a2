"""Tables of vectors read by the bucket of a pair (iRPE, Shaw, Huang)."""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..buckets import Buckets
from ..offsets import pair_places, sequence_places, with_prefix
from .layout import Layout
from .pairs import PairIndex
from .runs import Runs, RunsByKey
from .tables import add_table_grad, add_times_table, times_table
from .terms import ScoreMod, Term
from .writers import LogitWriter, ValueWriter, Work, Writer


@dataclass(frozen=True, eq=False)
class _Table(Term):
    """table ([heads], head_dims, buckets), or (.., buckets, head_dims) on values."""

    table: Tensor
    buckets: Buckets

    @property
    def reads_by_bucket(self) -> bool:  # type: ignore[override]
        """See :class:`Term`."""
        return self.buckets.method != 'sequence'

    @property
    def has_score_mod(self) -> bool:
        """See :class:`Term`: look-ups of all places of a sequence are larger than the logits."""
        keys = self.buckets.prefix + self.buckets.key.num_cells
        return super().has_score_mod and (self.reads_by_bucket or self.buckets.num <= keys)

    def _by_head(self, scale: float, like: Tensor) -> Tensor:
        table = self.table if scale == 1.0 else self.table * scale
        return (table if table.dim() == 3 else table[None]).to(like.dtype)

    def _spread(self, layout: Layout, long: bool, like: Tensor) -> PairIndex | Runs:
        if long and self.reads_by_bucket:
            return Runs(self.buckets, layout, like.dtype, like.device)
        return PairIndex(self.buckets, layout, False, like.device)


class TableByQuery(_Table):
    """q_i . table[b(i, j)]."""

    reads_queries = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        return gather_buckets(q @ self.table, self.buckets.ids(q.device))

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`."""
        return QueryTableWriter(self._by_head(scale, q), self._spread(layout, long, q))

    def score_mod(self, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
        """See :class:`Term`."""
        lookup, bucket = q @ (self.table * scale), _bucket_of(self.buckets, q.device)
        return lambda b, h, i, j: lookup[b, h, i, bucket(i, j)]

    def look_ups(self, q: Tensor, k: Tensor) -> int:
        """See :class:`Term`."""
        return math.prod(q.shape[:3]) * self.buckets.num


class TableByKey(_Table):
    """k_j . table[b(i, j)]; a scale of the keys is the table's."""

    reads_keys = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        ids = self.buckets.ids(k.device)
        return gather_buckets(k @ self.table, ids.t()).transpose(-2, -1)

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`."""
        table = self._by_head(1.0, q)
        if long and self.reads_by_bucket:
            return KeyTableWriter(table, RunsByKey(self.buckets, layout, q.dtype, q.device))
        return KeyTableWriter(table, PairIndex(self.buckets, layout, True, q.device))

    def score_mod(self, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
        """See :class:`Term`."""
        lookup, bucket = k @ self.table, _bucket_of(self.buckets, q.device)
        return lambda b, h, i, j: lookup[b, h, j, bucket(i, j)]

    def look_ups(self, q: Tensor, k: Tensor) -> int:
        """See :class:`Term`."""
        return math.prod(k.shape[:3]) * self.buckets.num


class TableOnValues(_Table):
    """sum_j a_ij table[b(i, j)], by adding the weights up in buckets first."""

    on_values = True

    def dense_values(self, weights: Tensor) -> Tensor:
        """See :class:`Term`."""
        sums = bucket_sums(weights, self.buckets.ids(weights.device), self.buckets.num)
        return sums @ self.table.to(weights.dtype)

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`."""
        return ValueTableWriter(self._by_head(1.0, q), self._spread(layout, long, q))


class QueryTableWriter(LogitWriter):
    """q_i . table[b(i, j)]; table (heads or 1, head_dims, buckets)."""

    def __init__(self, table: Tensor, spread: PairIndex | Runs) -> None:
        self.inputs, self.spread = (table,), spread
        self.whole_rows = isinstance(spread, Runs)

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        out = work.other if add else logits
        self.spread.read(times_table(work.q, self.inputs[0], work.piece), work.piece, out)
        if add:
            logits += out

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base."""
        sums = self.spread.sums(grad, work.piece)
        add_times_table(work.grad_q, sums, self.inputs[0].transpose(1, 2), work.piece)
        add_table_grad(self.grads[0], work.piece, work.q, sums)


class KeyTableWriter(LogitWriter):
    """k_j . table[b(i, j)]; table (heads or 1, head_dims, buckets)."""

    def __init__(self, table: Tensor, spread: PairIndex | RunsByKey) -> None:
        self.inputs, self.spread = (table,), spread
        self.whole_rows = isinstance(spread, RunsByKey)

    def begin(self, work: Work) -> None:
        """Look-ups of all keys."""
        self._expanded = self.spread.expand(times_table(work.k, self.inputs[0], work.piece))
        self._sums: Tensor | None = None

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        out = work.other if add else logits
        self.spread.read(self._expanded, work.piece, out)
        if add:
            logits += out

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base; complete after all queries."""
        sums = self.spread.sums(grad, work.piece)
        self._sums = sums if self._sums is None else self._sums.add_(sums)

    def end(self, work: Work) -> None:
        """Gradients of keys and table."""
        assert self._sums is not None
        sums = self.spread.contract(self._sums)
        add_times_table(work.grad_k, sums, self.inputs[0].transpose(1, 2), work.piece)
        add_table_grad(self.grads[0], work.piece, work.k, sums)


class ValueTableWriter(ValueWriter):
    """sum_j a_ij table[b(i, j)]; table (heads or 1, buckets, head_dims)."""

    def __init__(self, table: Tensor, spread: PairIndex | Runs) -> None:
        self.inputs, self.spread = (table,), spread
        self.whole_rows = isinstance(spread, Runs)

    def add(self, work: Work, weights: Tensor, out: Tensor) -> None:
        """As the base."""
        add_times_table(out, self.spread.sums(weights, work.piece), self.inputs[0], work.piece)

    def write_gradient(self, work: Work, grad: Tensor, out: Tensor) -> None:
        """As the base."""
        lookup = times_table(grad, self.inputs[0].transpose(1, 2), work.piece)
        self.spread.read(lookup, work.piece, out)

    def gradient(self, work: Work, weights: Tensor, grad: Tensor) -> None:
        """As the base."""
        add_table_grad(self.grads[0], work.piece, self.spread.sums(weights, work.piece), grad)


def gather_buckets(lookup: Tensor, ids: Tensor) -> Tensor:
    """lookup[..., i, ids[i, j]].

    Args:
        lookup: (B, heads, Lq, buckets).
        ids: (Lq, Lk) long.

    Returns:
        (B, heads, Lq, Lk).
    """
    return lookup.gather(-1, ids.expand(*lookup.shape[:2], *ids.shape))


def bucket_sums(weights: Tensor, ids: Tensor, num_buckets: int) -> Tensor:
    """Sum of the weights of each bucket, the adjoint of :func:`gather_buckets`.

    Args:
        weights: (B, heads, Lq, Lk).
        ids: (Lq, Lk) long.

    Returns:
        (B, heads, Lq, num_buckets).
    """
    sums = torch.zeros(*weights.shape[:3], num_buckets, dtype=weights.dtype, device=weights.device)
    return sums.scatter_add(-1, ids.expand(*weights.shape[:2], *ids.shape), weights)


def _bucket_of(buckets: Buckets, device: torch.device
               ) -> Callable[[Tensor, Tensor], Tensor]:
    """The bucket of a pair by index arithmetic on the distinct offsets: no index of all pairs."""
    if buckets.method == 'sequence':
        limit, sign = int(buckets.params.beta), -1 if buckets.reverse else 1
        places = sequence_places(buckets.query, buckets.key, buckets.prefix, device)
        return lambda i, j: (sign * (i - places[j])).clamp(-limit, limit) + limit
    place, behind = pair_places(buckets.query, buckets.key, buckets.prefix, device)
    table = buckets.by_offset(device)[0].flatten().int()
    table = with_prefix(table, table.new_full((3,), buckets.num_offset_buckets), behind)
    return lambda i, j: table[place(i, j)]
