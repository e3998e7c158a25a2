"""Terms that are not chosen by buckets: numbers by offset, vectors of rows and columns, of places
in a sequence, of keys or queries, and additional channels."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.grids import Grid, expand_offsets, grid_offsets, stored
from ..functional.tracing import is_compiling
from .terms import TableByQuery, Term

#: Pairs of cells up to which a bias by offset is read by one index of all pairs, which is stored:
#: on a CPU (windows of 7 x 7 and 8 x 8), and on an accelerator (not measured on a GPU).
ONE_INDEX_PAIRS = 64 * 64, 2048 * 2048


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

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The bias of every pair of tokens (1, heads or 1, Lq, Lk)."""
        cells = self._of_cells()
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

    def _of_cells(self) -> Tensor:
        """The bias of every pair of cells (heads or 1, Hq * Wq, Hk * Wk)."""
        table, grids = self.table, (self.query, self.key)
        _, row_index, _, col_index = grid_offsets(*grids, table.device)
        pairs = self.query.num_cells * self.key.num_cells
        # On a CPU torch adds up the gradients of an index pair by pair.
        if is_compiling() or pairs > ONE_INDEX_PAIRS[table.device.type != 'cpu']:
            return expand_offsets(table, row_index, col_index)
        places = stored(('pairs of offsets', *grids), lambda: (
            row_index[:, None, :, None] * table.shape[2] + col_index[:, None]).flatten(),
            table.device)
        return table.flatten(1).index_select(1, places).view(-1, self.query.num_cells,
                                                             self.key.num_cells)


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
        """Compute the products of queries with the vectors of rows (B, heads, Lq, Hk) and of
        columns (B, heads, Lq, Wk), zero for prefix queries, and those of pairs with a prefix token
        (B, heads, Lq, 1). ``scale`` is that of the queries; the vectors are scaled instead, as they
        are few. Each row (column) of queries takes one matrix product with the vectors that it
        needs."""
        shape = (*q.shape[:2], self.rows.shape[-3], self.cols.shape[-3], q.shape[-1])
        cells, dims = q[:, :, self.prefix:].reshape(shape), q.shape[-1] // 2
        by_row, by_col = (cells[..., :dims], cells[..., dims:]) if self.halves else (cells, cells)
        head = 'h' if self.rows.dim() == 4 else ''
        rows = torch.einsum(f'bhyxd,{head}ykd->bhyxk', by_row, (self.rows * scale).to(q.dtype))
        cols = torch.einsum(f'bhyxd,{head}xkd->bhyxk', by_col, (self.cols * scale).to(q.dtype))
        if self.row_bias is not None:
            rows = rows + self.row_bias[:, :, None].to(q.dtype)
        if self.col_bias is not None:
            cols = cols + self.col_bias[:, None].to(q.dtype)
        rows, cols = rows.flatten(2, 3), cols.flatten(2, 3)
        if self.prefix:
            rows, cols = (F.pad(x, (0, 0, self.prefix, 0)) for x in (rows, cols))
        if self.prefix_vector is None or not self.prefix:
            return rows, cols, None
        return rows, cols, q @ (self.prefix_vector * scale)[..., None].to(q.dtype)

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The products with the vectors of rows and of columns, added up."""
        rows, cols, prefix = self.products(q)
        term = F.pad((rows[..., :, None] + cols[..., None, :]).flatten(-2), (self.prefix, 0))
        if prefix is None:
            return term
        # A prefix query has one number for all keys, and so does a cell for all prefix keys.
        to_prefix = torch.zeros(q.shape[2], term.shape[-1], dtype=q.dtype, device=q.device)
        to_prefix[:, :self.prefix] = 1.0
        to_prefix[:self.prefix] = 1.0
        return term + prefix * to_prefix


#: Pairs from which iRPE's 'cross' on keys is faster as a half for each axis than as one table of
#: all pairs of buckets ('iRPE cross k', rows 197 and 577).
HALVES_FROM = 400 * 400


def halves_or_table(query: Grid, key: Grid, halves: Callable[[], AxisHalves],
                    table: Callable[[], TableByQuery]) -> Term:
    """Build the faster of two terms with equal results: for few pairs of a query and a key the
    table, for many the halves."""
    return halves() if query.num_cells * key.num_cells >= HALVES_FROM else table()


def pick_entries(table: Tensor, index: Tensor) -> Tensor:
    """Take the rows of a table ([heads], n, d) for each pair of an index: ([heads], *index.shape,
    d)."""
    picked: Tensor = table.index_select(-2, index.flatten())
    return picked.view(*table.shape[:-2], *index.shape, table.shape[-1])


@dataclass(frozen=True, eq=False)
class SkewedTable(Term):
    """q_i . table[j - i + L - 1] + bias[j - i + L - 1] for places i, j in a sequence of L tokens;
    table ([heads], 2 L - 1, head_dims), bias (heads, 2 L - 1) or None. Keys lie on the query grid.
    """

    table: Tensor
    bias: Tensor | None = None

    reads_queries = True

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of each query with the vector of each distance."""
        lookup = q @ self.table.transpose(-2, -1).to(q.dtype)
        return offsets_to_keys(lookup if self.bias is None else lookup + self.bias[:, None])


def offsets_to_keys(lookup: Tensor) -> Tensor:
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
class VectorsAddedToKeys(Term):
    """q_i . vectors[j]: vectors ([heads], Lk, head_dims) added to the keys of the dot product only.
    Attention adds them to the keys if no other term uses the keys."""

    vectors: Tensor

    reads_queries = True

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of the queries with the vectors, instead of the keys."""
        return q @ self.vectors.transpose(-2, -1).to(q.dtype)


@dataclass(frozen=True, eq=False)
class VectorAddedToQueries(Term):
    """vector . k_j: a vector ([heads], head_dims) added to the queries of the dot product only."""

    vector: Tensor

    reads_keys = True

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of the vector with the keys, the same for all queries."""
        return (k @ self.vector[..., None].to(k.dtype)).transpose(-2, -1)


@dataclass(frozen=True, eq=False)
class Channels(Term):
    """queries[i] . keys[j], where queries (B or 1, heads or 1, Lq, n) and keys (B or 1, heads or 1,
    Lk, n) are additional channels. Attention appends them to those of q and k if no other term uses
    these."""

    queries: Tensor
    keys: Tensor

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The product of the channels of each query with those of each key."""
        return self.queries @ self.keys.transpose(-2, -1)

    def channels_to_append(self, q: Tensor, k: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """The additional channels for queries and keys (B, heads, L, head_dims), in their dtype. In
        half precision each number is stored as the sum of two, and the products of these that
        matter are computed."""
        queries, keys = (mine.expand(*each.shape[:3], -1) for mine, each in
                         ((self.queries / scale, q), (self.keys, k)))
        if q.dtype not in (torch.float16, torch.bfloat16):
            return queries.to(q.dtype), keys.to(k.dtype)
        (query, query_rest), (key, key_rest) = (
            (x.to(q.dtype), (x - x.to(q.dtype)).to(q.dtype)) for x in (queries, keys))
        return (torch.cat((query, query, query_rest), -1), torch.cat((key, key_rest, key), -1))
