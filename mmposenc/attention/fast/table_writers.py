"""Writers of tables read by the bucket of a pair (iRPE, Shaw, Huang).

Tables are read by an index of all pairs on short sequences (:class:`PairIndex`), and a row of keys
at a time on long ones (:mod:`.runs`), where an index would be as large as the logits twice over.
"""
from __future__ import annotations

import torch
from torch import Tensor

from mmposenc.functional.buckets import Buckets
from mmposenc.functional.grids import CACHE, GridCache

from ..terms import Table, TableByKey, TableByQuery, TableOnValues
from . import thresholds
from .layout import Chunk, Layout
from .products import add_table_grad, add_times_table, times_table
from .runs import RunsByKey, RunsByQuery
from .writers import ChunkWork, LogitWriter, ValueWriter, Writer, writer


@writer.register(TableByQuery)
def table_by_query_writer(term: TableByQuery, q: Tensor, k: Tensor, layout: Layout, scale: float
                          ) -> Writer:
    table = term.table if scale == 1.0 else term.table * scale
    return QueryTableWriter(_with_head_dimension(table, q), _pair_index_or_runs(term, layout, q))


@writer.register(TableByKey)
def table_by_key_writer(term: TableByKey, q: Tensor, k: Tensor, layout: Layout, scale: float
                        ) -> Writer:
    if layout.filled and has_buckets_of_cells(term):
        return KeyTableWriter(_with_head_dimension(term.table, q),
                              RunsByKey(term.buckets, layout, q.dtype, q.device))
    return KeyTableWriter(_with_head_dimension(term.table, q),
                          PairIndex(term.buckets, layout, True, q.device))


@writer.register(TableOnValues)
def table_on_values_writer(term: TableOnValues, q: Tensor, k: Tensor, layout: Layout, scale: float
                           ) -> Writer:
    return ValueTableWriter(_with_head_dimension(term.table, q),
                            _pair_index_or_runs(term, layout, q))


def has_buckets_of_cells(term: object) -> bool:
    """Whether a term's look-ups can be read a row of keys at a time, which needs buckets of cells
    on a grid."""
    return isinstance(term, Table) and term.buckets.method != 'sequence'


def _with_head_dimension(table: Tensor, like: Tensor) -> Tensor:
    return (table if table.dim() == 3 else table[None]).to(like.dtype)


def _pair_index_or_runs(term: Table, layout: Layout, like: Tensor) -> PairIndex | RunsByQuery:
    if layout.filled and has_buckets_of_cells(term):
        return RunsByQuery(term.buckets, layout, like.dtype, like.device)
    return PairIndex(term.buckets, layout, False, like.device)


def _write_or_add_look_ups(spread: PairIndex | RunsByQuery | RunsByKey, lookup: Tensor,
                           work: ChunkWork, logits: Tensor, add: bool) -> None:
    out = work.other if add else logits
    spread.write_numbers_of_pairs(lookup, work.chunk, out)
    if add:
        logits += out


class QueryTableWriter(LogitWriter):
    """Writes q_i . table[b(i, j)], with a table (heads or 1, head_dims, buckets)."""

    def __init__(self, table: Tensor, spread: PairIndex | RunsByQuery) -> None:
        self.inputs, self.spread = (table,), spread
        self.whole_rows = isinstance(spread, RunsByQuery)

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the products of each query with the vectors of its buckets."""
        _write_or_add_look_ups(self.spread, times_table(work.q, self.inputs[0], work.chunk), work,
                               logits, add)

    def add_term_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Add to the gradients of the queries and of the table."""
        sums = self.spread.sum_to_lookups(grad, work.chunk)
        add_times_table(work.grad_q, sums, self.inputs[0].transpose(1, 2), work.chunk)
        add_table_grad(self.grads[0], work.chunk, work.q, sums)


class KeyTableWriter(LogitWriter):
    """Writes k_j . table[b(i, j)], with a table (heads or 1, head_dims, buckets)."""

    def __init__(self, table: Tensor, spread: PairIndex | RunsByKey) -> None:
        self.inputs, self.spread = (table,), spread
        self.whole_rows = isinstance(spread, RunsByKey)

    def before_chunks(self, work: ChunkWork) -> None:
        """Compute the look-ups of all keys."""
        self._expanded = self.spread.expand_to_runs(times_table(work.k, self.inputs[0], work.chunk))
        self._sums: Tensor | None = None

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the products of each key, which :meth:`before_chunks` computed, by bucket."""
        _write_or_add_look_ups(self.spread, self._expanded, work, logits, add)

    def add_term_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Add to the gradient of the products; complete after all queries."""
        sums = self.spread.sum_to_lookups(grad, work.chunk)
        self._sums = sums if self._sums is None else self._sums.add_(sums)

    def after_chunks(self, work: ChunkWork) -> None:
        """Compute the gradients of the keys and of the table."""
        assert self._sums is not None
        sums = self.spread.sum_to_buckets(self._sums)
        add_times_table(work.grad_k, sums, self.inputs[0].transpose(1, 2), work.chunk)
        add_table_grad(self.grads[0], work.chunk, work.k, sums)


class ValueTableWriter(ValueWriter):
    """Adds sum_j a_ij table[b(i, j)] to the output; table (heads or 1, buckets, head_dims)."""

    def __init__(self, table: Tensor, spread: PairIndex | RunsByQuery) -> None:
        self.inputs, self.spread = (table,), spread
        self.whole_rows = isinstance(spread, RunsByQuery)

    def add_to_output(self, work: ChunkWork, weights: Tensor, out: Tensor) -> None:
        """Add the vectors of the buckets, times the weights of each bucket."""
        sums = self.spread.sum_to_lookups(weights, work.chunk)
        add_times_table(out, sums, self.inputs[0], work.chunk)

    def write_weights_gradient(self, work: ChunkWork, grad: Tensor, out: Tensor) -> None:
        """Write the products of the output's gradient with the vectors."""
        lookup = times_table(grad, self.inputs[0].transpose(1, 2), work.chunk)
        self.spread.write_numbers_of_pairs(lookup, work.chunk, out)

    def add_term_gradients(self, work: ChunkWork, weights: Tensor, grad: Tensor) -> None:
        """Add to the gradient of the table."""
        sums = self.spread.sum_to_lookups(weights, work.chunk)
        add_table_grad(self.grads[0], work.chunk, sums, grad)


class PairIndex:
    """Reads tables of buckets through an index of every pair of a query and a key, in the look-ups
    of the queries or, with ``by_key``, of the keys. It has the methods of
    :class:`~.runs.RunsByQuery`, which is the other way."""

    def __init__(self, buckets: Buckets, layout: Layout, by_key: bool, device: torch.device
                 ) -> None:
        self.buckets, self.layout, self.by_key = buckets, layout, by_key
        self.device = device
        self._indices = GridCache(thresholds.INDEX_BYTES)

    def expand_to_runs(self, lookup: Tensor) -> Tensor:
        """Return the look-ups of all keys in the form that :meth:`write_numbers_of_pairs` takes."""
        return lookup

    def write_numbers_of_pairs(self, lookup: Tensor, chunk: Chunk, out: Tensor) -> None:
        """Copy the number of every pair out of the look-ups.

        Args:
            lookup: (heads, tokens, buckets) of the chunk's queries, or of all keys.
            out: (heads, queries, keys).
        """
        index = self._flat_lookup_index(chunk.queries, 1).expand(out.shape[0], -1)
        torch.gather(lookup.flatten(1), 1, index, out=out.view(out.shape[0], -1))

    def sum_to_lookups(self, logits: Tensor, chunk: Chunk) -> Tensor:
        """The adjoint of :meth:`write_numbers_of_pairs`: (heads, queries, keys) to (heads, tokens,
        buckets).

        Neighbours often share a bucket, and each addition would wait for the one before: they are
        added up in two halves in turn, a fourth faster.
        """
        heads, queries, keys = logits.shape
        tokens, num = keys if self.by_key else queries, self.buckets.num_all
        sums = logits.new_zeros(heads, tokens * 2 * num)
        index = self._flat_lookup_index(chunk.queries, 2).expand(heads, -1)
        sums.scatter_add_(1, index, logits.reshape(heads, -1))
        even, odd = sums.view(heads, tokens, 2, num).unbind(2)
        return even + odd

    def sum_to_buckets(self, sums: Tensor) -> Tensor:
        """The adjoint of :meth:`expand_to_runs`."""
        return sums

    def _flat_lookup_index(self, queries: slice, halves: int) -> Tensor:
        """Index (1, queries * keys) of every pair in look-ups that are ``halves`` times as long as
        the number of buckets."""
        def make_index() -> Tensor:
            if queries != slice(0, self.layout.len_q):
                return self._lookup_places(queries, halves)
            key = ('places', self.buckets, self.layout.filled, self.by_key, halves, self.device)
            return CACHE.get_or_make(key, lambda: self._lookup_places(queries, halves),
                                     lambda index: [index])

        return self._indices.get_or_make((queries.start, queries.stop, halves), make_index,
                                         lambda x: [x])

    def _lookup_places(self, queries: slice, halves: int) -> Tensor:
        ids = self.layout.arrange(self.buckets.ids(self.device, queries), -1).contiguous()
        query = torch.arange(ids.shape[0], device=self.device)[:, None] * self.buckets.num_all
        key = torch.arange(ids.shape[1], device=self.device) * self.buckets.num_all
        reader, other = (key, query) if self.by_key else (query, key)
        # Changed in place, because an index takes twice the memory of all logits of a head.
        ids += reader * halves
        ids += other % (halves * self.buckets.num_all)
        return ids.view(1, -1)
