"""Terms of places in a sequence, and of queries or keys alone."""
from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from ..buckets import BucketParams, Buckets
from ..grids import Grid
from .layout import Layout
from .table_terms import TableByQuery
from .tables import add_table_grad, add_times_table, pick_heads, times_table
from .terms import DenseBias, ScoreMod, Term
from .writers import LogitWriter, Work, Writer


@dataclass(frozen=True, eq=False)
class SkewedTable(Term):
    """q_i . table[j - i + L - 1] + bias[j - i + L - 1] for places i, j in a sequence of L tokens;
    table ([heads], 2 L - 1, head_dims), bias (heads, 2 L - 1) or None. Keys lie on the query grid.
    """

    table: Tensor
    bias: Tensor | None = None

    reads_queries = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        lookup = q @ self.table.transpose(-2, -1)
        return skew(lookup if self.bias is None else lookup + self.bias[:, None])

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`."""
        table = self.table if self.table.dim() == 3 else self.table[None]
        bias = None if self.bias is None else self.bias.to(q.dtype)
        return SkewWriter((table * scale).to(q.dtype), bias, layout)


class SkewWriter(LogitWriter):
    """q_i . table[j - i + L - 1] + bias[j - i + L - 1] with keys on the query grid; table (heads or
    1, 2 L - 1, head_dims), bias (heads or 1, 2 L - 1).

    A query meets the vectors of all offsets that some query of its piece has; the products by key
    are a view of them, each row one place further to the left.
    """

    #: A piece computes about this many products too many a query
    #: (benchmarks/relative.py cost, 'query relative 1-D').
    most_queries = 64

    def __init__(self, table: Tensor, bias: Tensor | None, layout: Layout) -> None:
        self.inputs = (table,) if bias is None else (table, bias)
        self.layout, self.length = layout, layout.len_k

    def _used(self, work: Work) -> slice:
        """Rows of the table that some of these queries use."""
        queries = work.piece.queries
        return slice(self.length - queries.stop, 2 * self.length - 1 - queries.start)

    def _by_key(self, lookup: Tensor) -> Tensor:
        """View (heads, n, L) by key of products by offset (heads, n, L + n - 1): row i starts at
        the offset n - 1 - i."""
        heads, rows, offsets = lookup.shape
        strides = (rows * offsets, max(offsets - 1, 1), 1)
        return lookup.as_strided((heads, rows, self.length), strides,
                                 lookup.storage_offset() + rows - 1)

    def _parts(self, by_key: Tensor, logits: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys in their own order and in that of the layout."""
        if not self.layout.filled:
            return [(by_key, logits)]
        prefix = self.layout.prefix
        return [(by_key[..., prefix:], logits[..., self.layout.cells]),
                (by_key[..., :prefix], logits[..., self.layout.prefix_keys])]

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        used = self._used(work)
        lookup = times_table(work.q, self.inputs[0][:, used].transpose(1, 2), work.piece)
        if len(self.inputs) > 1:
            bias = pick_heads(self.inputs[1][:, used], work.piece)
            lookup += bias if bias.dim() == 1 else bias[:, None]
        for source, target in self._parts(self._by_key(lookup), logits):
            if add:
                target += source
            else:
                target.copy_(source)

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base."""
        used = self._used(work)
        lookup = grad.new_zeros(*grad.shape[:2], used.stop - used.start)
        for target, source in self._parts(self._by_key(lookup), grad):
            target.copy_(source)
        add_times_table(work.grad_q, lookup, self.inputs[0][:, used], work.piece)
        add_table_grad(self.grads[0][:, used], work.piece, lookup, work.q)
        if len(self.inputs) > 1:
            total = self.grads[1][:, used]
            sums = work.piece.by_image(lookup.sum(1)).sum(0)
            if total.shape[0] == 1:
                total += sums.sum(0)
            else:
                total[work.piece.heads] += sums


@dataclass(frozen=True, eq=False)
class KeyVectors(Term):
    """q_i . vectors[j]: vectors ([heads], Lk, head_dims) added to the keys of the product alone;
    attention does just that where no other term reads the keys."""

    vectors: Tensor

    reads_queries = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        return q @ self.vectors.transpose(-2, -1).to(q.dtype)


@dataclass(frozen=True, eq=False)
class QueryVector(Term):
    """vector . k_j: a vector ([heads], head_dims) added to the queries of the product alone."""

    vector: Tensor

    reads_keys = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        return (k @ self.vector[..., None].to(k.dtype)).transpose(-2, -1)

    def score_mod(self, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
        """See :class:`Term`."""
        term = self.dense(q, k)
        return lambda b, h, i, j: term[b, h, i * 0, j]

    def look_ups(self, q: Tensor, k: Tensor) -> int:
        """See :class:`Term`."""
        return math.prod(k.shape[:3])


def sequence_terms(table: Tensor, bias: Tensor | None, query: Grid, key: Grid, prefix: int
                   ) -> list[Term]:
    """A table ([heads], 2 L - 1, head_dims) and bias (heads, 2 L - 1) or None by the distance j - i
    of places in the flattened grid behind its prefix tokens. Keys on another grid take the place of
    the query cell nearest to their centre."""
    if key == query:
        return [SkewedTable(table, bias)]
    limit = float(table.shape[-2] // 2)
    buckets = Buckets('sequence', BucketParams(1.0, limit, 2.0, 'clip'), query, key, prefix, True)
    found: list[Term] = [TableByQuery(table.transpose(-2, -1), buckets)]
    if bias is not None:
        found.append(DenseBias(bias[:, buckets.ids(bias.device)][None]))
    return found


def fold_vectors(terms: list[Term], k: Tensor) -> tuple[list[Term], Tensor]:
    """Add the vectors of :class:`KeyVectors` to the keys where no other term reads those."""
    if any(term.reads_keys for term in terms):
        return terms, k
    for term in terms:
        if isinstance(term, KeyVectors):
            k = k + term.vectors.to(k.dtype)
    return [term for term in terms if not isinstance(term, KeyVectors)], k


def skew(lookup: Tensor) -> Tensor:
    """Turn products by offset (..., L, 2 L - 1) into products by key (..., L, L).

    Row i starts at offset -i, so in memory key 0 of the next row lies 2 L - 2 places on: a view
    with that stride is all it takes, no index and no copy.
    """
    length = lookup.shape[-2]
    if length == 1:
        return lookup
    rows = lookup.flatten(-2).narrow(-1, length - 1, length * (2 * length - 2))
    rows = rows.reshape(*lookup.shape[:-1], 2 * length - 2)
    return rows[..., :length]
