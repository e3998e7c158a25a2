"""The writer of a term of the key's row and one of its column."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..vector_terms import AxisHalves
from .layout import Layout
from .products import add_summed_by_head, tables_of_chunk
from .writers import ChunkWork, LogitWriter, Writer, writer


@writer.register(AxisHalves)
def axis_halves_writer(term: AxisHalves, q: Tensor, k: Tensor, layout: Layout, scale: float
                       ) -> Writer:
    """Build the writer. Prefix queries need no terms: softmax ignores what is added to all keys of
    a query."""
    inputs = {name: x if x.dim() == 4 else x[None]
              for name, x in (('rows', term.rows), ('cols', term.cols))}
    if term.prefix and term.prefix_vector is not None:
        inputs['prefix'] = term.prefix_vector.reshape(-1, 1, q.shape[-1])
    inputs = {name: (x * scale).to(q.dtype) for name, x in inputs.items()}
    if term.row_bias is not None and term.col_bias is not None:
        inputs.update(row_bias=term.row_bias.to(q.dtype), col_bias=term.col_bias.to(q.dtype))
    return AxisWriter(inputs, layout, term.halves)


class AxisWriter(LogitWriter):
    """q_i . rows[r_i, r_j] + q_i . cols[c_i, c_j] + biases of the two axes, and q_i . prefix of
    cells with prefix keys; nothing for prefix queries.

    Inputs: rows (heads or 1, Hq, Hk, d), cols (heads or 1, Wq, Wk, d), with ``halves`` for the
    first and the second half of the channels; row_bias (heads, Hq, Hk), col_bias (heads, Wq, Wk);
    prefix (heads or 1, 1, d).
    """

    def __init__(self, inputs: dict[str, Tensor], layout: Layout, halves: bool) -> None:
        dims = inputs['rows'].shape[-1]
        self.by_row = slice(0, dims)
        self.by_col = slice(dims if halves else 0, None)
        self.names, self.inputs, self.layout = tuple(inputs), tuple(inputs.values()), layout
        assert layout.query is not None and layout.key is not None
        self.hw, self.key_hw = layout.query.hw, layout.key.hw

    def _input_of_chunk(self, work: ChunkWork, name: str) -> Tensor | None:
        """The named input for the heads of a chunk, or None if the term has no such input."""
        if name not in self.names:
            return None
        return tables_of_chunk(self.inputs[self.names.index(name)], work.chunk)

    def _add_to_gradient_of(self, work: ChunkWork, name: str, grad: Tensor) -> None:
        if name in self.names:
            add_summed_by_head(self.grads[self.names.index(name)], work.chunk, grad)

    def before_chunks(self, work: ChunkWork) -> None:
        """Products of all queries with rows (heads, Lq, Hk), with columns, and with prefix keys."""
        prefix = self.layout.prefix
        cells = work.q[:, prefix:].unflatten(1, self.hw)
        rows, cols = self._input_of_chunk(work, 'rows'), self._input_of_chunk(work, 'cols')
        assert rows is not None and cols is not None
        head = 'n' if rows.dim() == 4 else ''
        self._products = [
            torch.einsum(f'nyxd,{head}ykd->nyxk', cells[..., self.by_row], rows),
            torch.einsum(f'nyxd,{head}xkd->nyxk', cells[..., self.by_col], cols)]
        by_row = self._input_of_chunk(work, 'row_bias')
        by_col = self._input_of_chunk(work, 'col_bias')
        if by_row is not None and by_col is not None:
            # Not in place: selective checkpointing may have stored the products.
            self._products[0] = self._products[0] + by_row.unsqueeze(-2)
            self._products[1] = self._products[1] + by_col.unsqueeze(-3)
        vector = self._input_of_chunk(work, 'prefix')
        if vector is not None:
            self._products.append(cells @ vector.transpose(-2, -1).unsqueeze(-3))
        self._products = [F.pad(x.flatten(1, 2), (0, 0, prefix, 0)) if prefix else x.flatten(1, 2)
                          for x in self._products]
        if self.grads:
            self._grads = [torch.empty_like(x) for x in self._products]

    def _cells_as_grid(self, logits: Tensor) -> Tensor:
        """The logits (heads, queries, keys) of cells as a grid of keys, (heads, queries, Hk, Wk).
        """
        cells: Tensor = logits[..., self.layout.cell_keys].unflatten(-1, self.key_hw)
        return cells

    def write(self, work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Write the sum of the products with the key's row and column."""
        rows, cols, *others = (x[:, work.chunk.queries] for x in self._products)
        grid, prefix = self._cells_as_grid(logits), logits[..., self.layout.prefix_keys]
        if add:
            grid += rows[..., None]
            grid += cols[..., None, :]
        else:
            torch.add(rows[..., None], cols[..., None, :], out=grid)
            prefix.zero_()
        if others:
            prefix += others[0]

    def add_term_gradients(self, work: ChunkWork, grad: Tensor) -> None:
        """Store the gradients of the products of these queries; complete after all queries."""
        rows, cols, *others = (x[:, work.chunk.queries] for x in self._grads)
        grid = self._cells_as_grid(grad)
        torch.sum(grid, -1, out=rows)
        torch.sum(grid, -2, out=cols)
        if others:
            torch.sum(grad[..., self.layout.prefix_keys], -1, keepdim=True, out=others[0])

    def after_chunks(self, work: ChunkWork) -> None:
        """Compute the gradients of the queries and of the inputs from those of the products."""
        p = self.layout.prefix
        cells = work.q[:, p:].unflatten(1, self.hw)
        by_row, by_col, *others = (x[:, p:].unflatten(1, self.hw) for x in self._grads)
        rows, cols = self._input_of_chunk(work, 'rows'), self._input_of_chunk(work, 'cols')
        assert rows is not None and cols is not None
        head = 'n' if rows.dim() == 4 else ''
        grad_q = work.grad_q[:, p:].unflatten(1, self.hw)
        grad_q[..., self.by_row] += torch.einsum(f'nyxk,{head}ykd->nyxd', by_row, rows)
        grad_q[..., self.by_col] += torch.einsum(f'nyxk,{head}xkd->nyxd', by_col, cols)
        self._add_to_gradient_of(work, 'rows',
                                 torch.einsum('nyxk,nyxd->nykd', by_row, cells[..., self.by_row]))
        self._add_to_gradient_of(work, 'cols',
                                 torch.einsum('nyxk,nyxd->nxkd', by_col, cells[..., self.by_col]))
        self._add_to_gradient_of(work, 'row_bias', by_row.sum(2))
        self._add_to_gradient_of(work, 'col_bias', by_col.sum(1))
        vector = self._input_of_chunk(work, 'prefix')
        if vector is not None:
            grad_q += others[0] * vector.unsqueeze(-3)
            self._add_to_gradient_of(work, 'prefix', (others[0] * cells).sum((1, 2))[:, None])
