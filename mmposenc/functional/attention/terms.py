"""What relative encodings add to attention: the few kinds of terms.

A term says what is added, by its definition over all pairs; how it writes a piece of the logits is
its :meth:`Term.writer`'s business, and which engine runs is attention's alone.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ..buckets import BucketParams, Buckets
from ..grids import Grid
from ..offsets import grid_offsets
from .layout import Layout
from .lookup import (
    axis_products,
    bucket_sums,
    gather_buckets,
    join_axes,
    offset_runs,
    skew,
    spread_offsets,
)
from .pairs import PairIndex
from .runs import Runs, RunsByKey
from .writers import (
    AxisWriter,
    DenseWriter,
    KeyTableWriter,
    QueryTableWriter,
    ShiftWriter,
    SkewWriter,
    ValueTableWriter,
    Writer,
)

#: What a term adds to the logit of image b, head h, query i and key j, all of them tensors.
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class Term:
    """Base. Queries ``q`` (B, heads, Lq, head_dims) are scaled, keys ``k`` (B, heads, Lk,
    head_dims) are not; both start with their prefix tokens. Tables are ([heads], ...): without the
    first dimension, or with 1 in it, heads share them."""

    #: True for terms of the output instead of the logits.
    on_values = False
    #: True if the term depends on the queries, or on the keys, and not on the grids alone.
    reads_queries = False
    reads_keys = False
    #: True if it reads look-ups by buckets of cells.
    reads_by_bucket = False

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The definition: (B or 1, heads or 1, Lq, Lk), added to the logits."""
        raise NotImplementedError

    def dense_values(self, weights: Tensor) -> Tensor:
        """The definition of a term of the output (B, heads, Lq, head_dims), by the weights."""
        raise NotImplementedError

    @property
    def has_writer(self) -> bool:
        """Whether pieces can compute the term: one of the output needs a writer of its own."""
        return not self.on_values or type(self).writer is not Term.writer

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """Writes pieces; by default the definition's.

        Args:
            q, k: neither is scaled.
            scale: of the queries.
            long: tables are read a row of keys at a time, which needs :attr:`Layout.filled`.
        """
        return DenseBias(self.dense(q * scale, k)).writer(q, k, layout, scale, long)

    def score_mod(self, q: Tensor, k: Tensor) -> ScoreMod | None:
        """For FlexAttention; None where it has none."""
        return None


@dataclass(frozen=True, eq=False)
class _Table(Term):
    """table ([heads], head_dims, buckets), or (.., buckets, head_dims) on values."""

    table: Tensor
    buckets: Buckets

    @property
    def reads_by_bucket(self) -> bool:  # type: ignore[override]
        """See :class:`Term`."""
        return self.buckets.method != 'sequence'

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

    def score_mod(self, q: Tensor, k: Tensor) -> ScoreMod:
        """See :class:`Term`."""
        lookup, bucket = q @ self.table, _bucket_of(self.buckets, q.device)
        return lambda b, h, i, j: lookup[b, h, i, bucket(i, j)]


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

    def score_mod(self, q: Tensor, k: Tensor) -> ScoreMod:
        """See :class:`Term`."""
        lookup, bucket = k @ self.table, _bucket_of(self.buckets, q.device)
        return lambda b, h, i, j: lookup[b, h, j, bucket(i, j)]


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
        cells = spread_offsets(self.table, row_index, col_index)[None]
        if not self.prefix:
            return cells
        padded = F.pad(cells, (self.prefix, 0, self.prefix, 0))
        if self.prefix_bias is None:
            return padded
        is_prefix = torch.arange(padded.shape[-2], device=q.device)[:, None] < self.prefix
        key_is_prefix = torch.arange(padded.shape[-1], device=q.device) < self.prefix
        kinds = torch.stack((is_prefix & ~key_is_prefix, ~is_prefix & key_is_prefix,
                             is_prefix & key_is_prefix)).to(cells.dtype)
        return padded + torch.einsum('hn,nij->hij', self.prefix_bias.to(cells.dtype), kinds)

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

    def score_mod(self, q: Tensor, k: Tensor) -> ScoreMod:
        """See :class:`Term`."""
        _, row_index, _, col_index = grid_offsets(self.query, self.key, q.device)
        table, prefix_bias, p = self.table, self.prefix_bias, self.prefix

        def mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            head = h if table.shape[0] > 1 else h * 0
            a, c = (i - p).clamp(min=0), (j - p).clamp(min=0)
            found = table[head, row_index[a // self.query.width, c // self.key.width],
                          col_index[a % self.query.width, c % self.key.width]]
            if not p:
                return found
            kind = torch.where(i >= p, 1, torch.where(j >= p, 0, 2))
            other = 0.0 if prefix_bias is None else prefix_bias[
                h if prefix_bias.shape[0] > 1 else h * 0, kind]
            return torch.where((i < p) | (j < p), other, found)
        return mod


@dataclass(frozen=True, eq=False)
class AxisHalves(Term):
    """q_i . rows[r_i, r_j] + q_i . cols[c_i, c_j]: a half for each axis.

    Args:
        rows: ([heads], Hq, Hk, d) vectors; cols: ([heads], Wq, Wk, d).
        prefix: tokens in front of either grid.
        halves: the rows meet the first half of the channels and the columns the second, instead of
            both meeting all.
        row_bias, col_bias: (heads, Hq, Hk) and (heads, Wq, Wk), added; or None.
        prefix_vector: ([heads], d) that queries meet in pairs with a prefix token; None is zero.
    """

    rows: Tensor
    cols: Tensor
    prefix: int = 0
    halves: bool = False
    row_bias: Tensor | None = None
    col_bias: Tensor | None = None
    prefix_vector: Tensor | None = None

    reads_queries = True

    def products(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """(B, heads, Lq, Hk) and (B, heads, Lq, Wk), zero for prefix queries, and (B, heads, Lq, 1)
        of pairs with a prefix token."""
        cells = q[:, :, self.prefix:]
        dims = q.shape[-1] // 2
        by_row, by_col = (cells[..., :dims], cells[..., dims:]) if self.halves else (cells, cells)
        found = axis_products(by_row, by_col, self.rows, self.cols)
        rows, cols = (F.pad((x if bias is None else x + bias).flatten(2, 3), (0, 0, self.prefix, 0))
                      for x, bias in zip(found, self._biases(q.dtype), strict=True))
        if self.prefix_vector is None or not self.prefix:
            return rows, cols, None
        return rows, cols, q @ self.prefix_vector[..., None].to(q.dtype)

    def _biases(self, dtype: torch.dtype) -> list[Tensor | None]:
        """Biases to be added to (B, heads, Hq, Wq, .)."""
        return [None if self.row_bias is None else self.row_bias[:, :, None].to(dtype),
                None if self.col_bias is None else self.col_bias[:, None].to(dtype)]

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        rows, cols, prefix = self.products(q)
        term = F.pad(join_axes(rows, cols), (self.prefix, 0))
        if prefix is None:
            return term
        # Prefix queries have one number for all keys, cells have it with prefix keys.
        to_prefix = torch.zeros(q.shape[2], term.shape[-1], dtype=q.dtype, device=q.device)
        to_prefix[:, :self.prefix] = 1.0
        to_prefix[:self.prefix] = 1.0
        return term + prefix * to_prefix

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`; softmax ignores what is added to all keys of a prefix query."""
        rows, cols = self.rows, self.cols
        if self.halves:  # zeros for the channels of the other axis
            rows, cols = F.pad(rows, (0, rows.shape[-1])), F.pad(cols, (cols.shape[-1], 0))
        inputs = dict(rows=rows if rows.dim() == 4 else rows[None],
                      cols=cols if cols.dim() == 4 else cols[None])
        if self.prefix and self.prefix_vector is not None:
            inputs['prefix'] = self.prefix_vector.reshape(-1, 1, q.shape[-1])
        inputs = {name: (x * scale).to(q.dtype) for name, x in inputs.items()}
        if self.row_bias is not None and self.col_bias is not None:
            inputs.update(row_bias=self.row_bias.to(q.dtype), col_bias=self.col_bias.to(q.dtype))
        return AxisWriter(inputs, layout)

    def score_mod(self, q: Tensor, k: Tensor) -> ScoreMod:
        """See :class:`Term`."""
        rows, cols, prefix = self.products(q)
        p, width = self.prefix, cols.shape[-1]

        def mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            c = (j - p).clamp(min=0)
            found = rows[b, h, i, c // width] + cols[b, h, i, c % width]
            if not p:
                return found
            other = 0.0 if prefix is None else prefix[b, h, i, i * 0]
            return torch.where((i < p) | (j < p), other, found)
        return mod


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


@dataclass(frozen=True, eq=False)
class DenseBias(Term):
    """bias (B or 1, heads or 1, Lq or 1, Lk)."""

    bias: Tensor

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        return self.bias

    def writer(self, q: Tensor, k: Tensor, layout: Layout, scale: float, long: bool) -> Writer:
        """See :class:`Term`."""
        return DenseWriter(layout.arrange(self.bias, -1).to(q.dtype))

    def score_mod(self, q: Tensor, k: Tensor) -> ScoreMod:
        """See :class:`Term`."""
        bias = self.bias

        def mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            at = [index if size > 1 else index * 0
                  for index, size in zip((b, h, i), bias.shape[:3], strict=True)]
            return bias[at[0], at[1], at[2], j]
        return mod


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

    def score_mod(self, q: Tensor, k: Tensor) -> ScoreMod:
        """See :class:`Term`."""
        term = self.dense(q, k)
        return lambda b, h, i, j: term[b, h, i * 0, j]


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


def in_dtype(term: Term, dtype: torch.dtype) -> Term:
    """The term with its floating tensors in ``dtype``."""
    changed = {name: value.to(dtype) for name, value in vars(term).items()
               if isinstance(value, Tensor) and value.is_floating_point()}
    return replace(term, **changed)  # type: ignore[type-var]


def _bucket_of(buckets: Buckets, device: torch.device
               ) -> Callable[[Tensor, Tensor], Tensor]:
    """The bucket of a pair by index arithmetic on the distinct offsets: no index of all pairs."""
    if buckets.method == 'sequence':
        ids = buckets.ids(device)
        return lambda i, j: ids[i, j]
    table, row_index, col_index = buckets.by_offset(device)
    p, extra = buckets.prefix, buckets.num_offset_buckets

    def bucket(i: Tensor, j: Tensor) -> Tensor:
        a, c = (i - p).clamp(min=0), (j - p).clamp(min=0)
        found = table[row_index[a // buckets.query.width, c // buckets.key.width],
                      col_index[a % buckets.query.width, c % buckets.key.width]]
        return torch.where((i < p) | (j < p), extra, found) if p else found
    return bucket
