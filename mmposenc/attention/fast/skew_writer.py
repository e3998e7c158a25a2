"""The writer of a table by the distance of two places in a sequence."""
from __future__ import annotations

from torch import Tensor

from ..terms import Problem
from ..vector_terms import SkewedTable
from .products import (
    add_summed_by_head,
    add_table_grad,
    add_times_table,
    tables_of_chunk,
    times_table,
    with_heads,
)
from .writers import ChunkWork, Writer, copy_or_add


class SkewWriter(Writer):
    """q_i . table[j - i + L - 1] + bias[j - i + L - 1] with keys on the query grid; table (heads or
    1, 2 L - 1, head_dims), bias (heads or 1, 2 L - 1).

    A query meets the vectors of all offsets that some query of its chunk has; the products by key
    are a view of them, each row one number further to the left.
    """

    #: The largest number of queries in a chunk: each query computes about this many products that
    #: it does not need (docs/results.md, 'query relative 1-D').
    most_queries = 64

    def __init__(self, term: SkewedTable, problem: Problem) -> None:
        table, dtype = with_heads(term.table) * problem.scale, problem.q.dtype
        self.inputs = tuple(x.to(dtype) for x in (table, term.bias) if x is not None)
        self.length = problem.k.shape[2]

    def _used(self, work: ChunkWork) -> slice:
        """The rows of the table that some of these queries use."""
        queries = work.chunk.queries
        return slice(self.length - queries.stop, 2 * self.length - 1 - queries.start)

    def _by_key(self, lookup: Tensor) -> Tensor:
        """View products by offset (heads, n, L + n - 1) as products by key (heads, n, L): row i
        starts at the offset n - 1 - i."""
        heads, rows, offsets = lookup.shape
        strides = (rows * offsets, max(offsets - 1, 1), 1)
        return lookup.as_strided((heads, rows, self.length), strides,
                                 lookup.storage_offset() + rows - 1)

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the products of the queries with the rows of the table."""
        used = self._used(work)
        lookup = times_table(work.q, self.inputs[0][:, used].transpose(1, 2), work.chunk)
        if len(self.inputs) > 1:
            bias = tables_of_chunk(self.inputs[1][:, used], work.chunk)
            # Not in place: selective checkpointing may have stored the products.
            lookup = lookup + (bias if bias.dim() == 1 else bias[:, None])
        copy_or_add(self._by_key(lookup), logits, add)

    def add_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Add to the gradients of the queries and of the table."""
        used = self._used(work)
        lookup = grad.new_zeros(*grad.shape[:2], used.stop - used.start)
        self._by_key(lookup).copy_(grad)
        add_times_table(work.grad_q, lookup, self.inputs[0][:, used], work.chunk)
        add_table_grad(self.grads[0][:, used], work.chunk, lookup, work.q)
        if len(self.inputs) > 1:
            add_summed_by_head(self.grads[1][:, used], work.chunk, lookup.sum(1))
