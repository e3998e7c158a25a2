"""The terms that relative encodings add to attention, with their definitions over all pairs. A term
that only one encoding uses is defined in the file of that encoding.

A term defines what is added, not how it is computed. :mod:`.fast` has faster
implementations for types of terms; other types are computed by their definition.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.buckets import Buckets
from ..functional.grids import Grid, expand_offsets, grid_offsets


class Term:
    """The base class. Queries ``q`` (B, heads, Lq, head_dims) are scaled, keys ``k`` (B, heads, Lk,
    head_dims) are not; both start with their prefix tokens. Tables are ([heads], ...): if the first
    dimension is missing or 1, all heads share them."""

    #: True for terms of the output instead of the logits.
    on_values = False
    #: False for terms of the output that do not depend on the attention weights.
    reads_weights = True
    #: True if the term depends on the queries, or on the keys, and not only on the grids.
    reads_queries = False
    reads_keys = False

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The definition: (B or 1, heads or 1, Lq, Lk), added to the logits."""
        raise NotImplementedError

    def dense_values(self, weights: Tensor) -> Tensor:
        """The definition of a term of the output (B, heads, Lq, head_dims), by the weights."""
        raise NotImplementedError

    def within(self, regions: Tensor | None) -> Term:
        """The term where tokens only see those of their region, as in a :class:`Problem`: for terms
        in which other tokens than the pair take part."""
        return self

    def output(self, q: Tensor, v: Tensor, padding: Tensor | None, regions: Tensor | None
               ) -> Tensor:
        """The definition of a term of the output without attention weights, from queries and values
        (B, heads, L, head_dims) and the masks of a :class:`Problem`."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class DenseBias(Term):
    """bias (B or 1, heads or 1, Lq or 1, Lk)."""

    bias: Tensor

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The bias itself, for any queries and keys."""
        return self.bias


@dataclass(frozen=True, eq=False)
class OffsetBias(Term):
    """bias[head, row offset, column offset] of two cells (Swin, iRPE's bias mode, log CPB, ALiBi).

    Args:
        table: (heads or 1, Dr, Dc), by the distinct offsets of :func:`~..grids.grid_offsets`.
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
        """The bias of every pair of tokens (1, heads or 1, Lq, Lk)."""
        _, row_index, _, col_index = grid_offsets(self.query, self.key, q.device)
        cells = expand_offsets(self.table, row_index, col_index)
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


@dataclass(frozen=True, eq=False)
class Table(Term):
    """The base class of vectors by the bucket of a pair (iRPE, Shaw, Huang): table ([heads],
    head_dims, buckets), or ([heads], buckets, head_dims) for values."""

    table: Tensor
    buckets: Buckets


class TableByQuery(Table):
    """q_i . table[b(i, j)]."""

    reads_queries = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of each query with the vectors of its pairs."""
        return gather_buckets(q @ self.table, self.buckets.ids(q.device))


class TableByKey(Table):
    """k_j . table[b(i, j)]; a scale of the keys is included in the table."""

    reads_keys = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of each key with the vectors of its pairs."""
        ids = self.buckets.ids(k.device)
        return gather_buckets(k @ self.table, ids.t()).transpose(-2, -1)


class TableOnValues(Table):
    """sum_j a_ij table[b(i, j)], computed by summing the weights of each bucket first."""

    on_values = True

    def dense_values(self, weights: Tensor) -> Tensor:
        """The sum of the vectors of all pairs of a query, by their weights."""
        sums = bucket_sums(weights, self.buckets.ids(weights.device), self.buckets.num)
        return sums @ self.table.to(weights.dtype)


def gather_buckets(lookup: Tensor, ids: Tensor) -> Tensor:
    """lookup[..., i, ids[i, j]] of (B, heads, Lq, buckets) and (Lq, Lk): (B, heads, Lq, Lk)."""
    return lookup.gather(-1, ids.expand(*lookup.shape[:2], *ids.shape))


def bucket_sums(weights: Tensor, ids: Tensor, num_buckets: int) -> Tensor:
    """The weights (B, heads, Lq, Lk) of each bucket added up, the adjoint of
    :func:`gather_buckets`: (B, heads, Lq, num_buckets)."""
    sums = torch.zeros(*weights.shape[:3], num_buckets, dtype=weights.dtype, device=weights.device)
    return sums.scatter_add(-1, ids.expand(*weights.shape[:2], *ids.shape), weights)


@dataclass(frozen=True, eq=False)
class AxisHalves(Term):
    """q_i . rows[r_i, r_j] + q_i . cols[c_i, c_j]: a half for each axis (SASA, Transformer-XL,
    query relative 2-D, decomposed).

    Args:
        rows: ([heads], Hq, Hk, d) vectors; cols: ([heads], Wq, Wk, d).
        prefix: tokens in front of either grid.
        halves: rows are multiplied with the first half of the channels and columns with the second;
            False: both with all channels.
        row_bias, col_bias: (heads, Hq, Hk) and (heads, Wq, Wk), added; or None.
        prefix_vector: ([heads], d), multiplied with queries for prefix keys; None: zero.
    """

    rows: Tensor
    cols: Tensor
    prefix: int = 0
    halves: bool = False
    row_bias: Tensor | None = None
    col_bias: Tensor | None = None
    prefix_vector: Tensor | None = None

    reads_queries = True

    def products(self, q: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor | None]:
        """(B, heads, Lq, Hk) and (B, heads, Lq, Wk), zero for prefix queries, and (B, heads, Lq, 1)
        of pairs with a prefix token. ``scale`` is that of the queries; vectors take it, as they are
        few. One matrix product for each row (column) of queries with the vectors it needs."""
        shape = (*q.shape[:2], self.rows.shape[-3], self.cols.shape[-3], q.shape[-1])
        cells, dims = q[:, :, self.prefix:].reshape(shape), q.shape[-1] // 2
        by_row, by_col = (cells[..., :dims], cells[..., dims:]) if self.halves else (cells, cells)
        head = 'h' if self.rows.dim() == 4 else ''
        rows = torch.einsum(f'bhyxd,{head}ykd->bhyxk', by_row, self.rows * scale)
        cols = torch.einsum(f'bhyxd,{head}xkd->bhyxk', by_col, self.cols * scale)
        if self.row_bias is not None:
            rows = rows + self.row_bias[:, :, None].to(q.dtype)
        if self.col_bias is not None:
            cols = cols + self.col_bias[:, None].to(q.dtype)
        rows, cols = (F.pad(x.flatten(2, 3), (0, 0, self.prefix, 0)) for x in (rows, cols))
        if self.prefix_vector is None or not self.prefix:
            return rows, cols, None
        return rows, cols, q @ (self.prefix_vector * scale)[..., None].to(q.dtype)

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The products with the vectors of rows and of columns, added up."""
        rows, cols, prefix = self.products(q)
        term = F.pad((rows[..., :, None] + cols[..., None, :]).flatten(-2), (self.prefix, 0))
        if prefix is None:
            return term
        # Prefix queries have one number for all keys, cells have it with prefix keys.
        to_prefix = torch.zeros(q.shape[2], term.shape[-1], dtype=q.dtype, device=q.device)
        to_prefix[:, :self.prefix] = 1.0
        to_prefix[:self.prefix] = 1.0
        return term + prefix * to_prefix


@dataclass(frozen=True, eq=False)
class SkewedTable(Term):
    """q_i . table[j - i + L - 1] + bias[j - i + L - 1] for places i, j in a sequence of L tokens;
    table ([heads], 2 L - 1, head_dims), bias (heads, 2 L - 1) or None. Keys lie on the query grid.
    """

    table: Tensor
    bias: Tensor | None = None

    reads_queries = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of each query with the vector of each distance."""
        lookup = q @ self.table.transpose(-2, -1)
        return skew(lookup if self.bias is None else lookup + self.bias[:, None])


def skew(lookup: Tensor) -> Tensor:
    """Convert products by offset (..., L, 2 L - 1) to products by key (..., L, L).

    Row i starts at offset -i, so in memory key 0 of the next row is 2 L - 2 places further: a view
    with that stride, without an index or a copy.
    """
    length = lookup.shape[-2]
    if length == 1:
        return lookup
    rows = lookup.flatten(-2).narrow(-1, length - 1, length * (2 * length - 2))
    return rows.reshape(*lookup.shape[:-1], 2 * length - 2)[..., :length]


@dataclass(frozen=True, eq=False)
class KeyVectors(Term):
    """q_i . vectors[j]: vectors ([heads], Lk, head_dims) added to the keys of the dot product only.
    Attention adds them to the keys if no other term uses the keys."""

    vectors: Tensor

    reads_queries = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of the queries with the vectors, instead of the keys."""
        return q @ self.vectors.transpose(-2, -1).to(q.dtype)


@dataclass(frozen=True, eq=False)
class QueryVector(Term):
    """vector . k_j: a vector ([heads], head_dims) added to the queries of the dot product only."""

    vector: Tensor

    reads_keys = True

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of the vector with the keys, the same for all queries."""
        return (k @ self.vector[..., None].to(k.dtype)).transpose(-2, -1)


@dataclass(frozen=True, eq=False)
class Channels(Term):
    """queries[i] . keys[j]: queries (B or 1, heads or 1, Lq, n) and keys (B or 1, heads or 1, Lk,
    n) of their own. Attention appends them to the others as further channels if no other term uses
    those."""

    queries: Tensor
    keys: Tensor

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of these vectors."""
        return self.queries @ self.keys.transpose(-2, -1)

    def beside(self, q: Tensor, k: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The channels for queries and keys (B, heads, L, head_dims), in their dtype. In half
        precision each number is the sum of two, of which the products that count are taken."""
        queries, keys = (mine.expand(*each.shape[:3], -1) for mine, each in
                         ((self.queries / scale, q), (self.keys, k)))
        if q.dtype not in (torch.float16, torch.bfloat16):
            return queries.to(q.dtype), keys.to(k.dtype)
        (query, query_rest), (key, key_rest) = (
            (x.to(q.dtype), (x - x.to(q.dtype)).to(q.dtype)) for x in (queries, keys))
        return (torch.cat((query, query, query_rest), -1), torch.cat((key, key_rest, key), -1))


class Problem(NamedTuple):
    """One attention, the input of every implementation.

    Attributes:
        q, k, v: q (B, heads, Lq, head_dims), rotated, not scaled; k, v (B, heads, Lk, head_dims).
        scale: of the queries.
        terms: the terms of the encodings.
        query, key, prefix: grids of the cells, and number of prefix tokens, with an encoding.
        key_padding: (B, Lk) bool, True = padding; every image has a valid key.
        query_padding: (B, Lq) bool, True = padding, to find the grid of each image.
        attn_mask: (B or 1, heads or 1, Lq or 1, Lk) bool, True = may attend.
        regions: (n, L) whole numbers, row b % n for image b; tokens attend only to tokens with
            their own number.
        tokens: (B, Lq, embed_dims) that queries are projections of, if the encoding reads them.
        dropout_p: dropout rate of the weights.
        need_weights: whether the weights are a result, too.
        implementation: the requested implementation, or 'auto'.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    terms: Sequence[Term] = ()
    query: Grid | None = None
    key: Grid | None = None
    prefix: int = 0
    key_padding: Tensor | None = None
    query_padding: Tensor | None = None
    attn_mask: Tensor | None = None
    regions: Tensor | None = None
    tokens: Tensor | None = None
    dropout_p: float = 0.0
    need_weights: bool = False
    implementation: str = 'auto'

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """The grids of queries and keys, which an attention with an encoding has."""
        assert self.query is not None and self.key is not None
        return self.query, self.key

    def mask(self, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """A bias with all masks, to be added to the logits; without a bias bool (True = attend)."""
        keep = self.attn_mask
        if self.key_padding is not None:
            valid = ~self.key_padding[:, None, None]
            keep = valid if keep is None else keep & valid
        if self.regions is not None:
            same = of_one_region(self.regions)
            same = same.repeat(self.q.shape[0] // same.shape[0], 1, 1)[:, None]
            keep = same if keep is None else keep & same
        if keep is None or bias is None:
            return keep if bias is None else bias.to(dtype)
        return bias.to(dtype).masked_fill(~keep, float('-inf'))


def of_one_region(regions: Tensor) -> Tensor:
    """(windows, L) -> (windows, L, L) bool: pairs of tokens with the same number."""
    return regions[:, :, None] == regions[:, None, :]
