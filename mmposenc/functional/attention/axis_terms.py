"""A term of the key's row and one of its column (SASA, Transformer-XL, query relative 2-D)."""
from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .layout import Layout
from .tables import add_by_head, pick_heads
from .terms import ScoreMod, Term
from .writers import LogitWriter, Work, Writer


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

    def products(self, q: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor | None]:
        """(B, heads, Lq, Hk) and (B, heads, Lq, Wk), zero for prefix queries, and (B, heads, Lq, 1)
        of pairs with a prefix token. ``scale`` is that of the queries; vectors take it, as they are
        few."""
        cells = q[:, :, self.prefix:]
        dims = q.shape[-1] // 2
        by_row, by_col = (cells[..., :dims], cells[..., dims:]) if self.halves else (cells, cells)
        found = axis_products(by_row, by_col, self.rows * scale, self.cols * scale)
        rows, cols = (F.pad((x if bias is None else x + bias).flatten(2, 3), (0, 0, self.prefix, 0))
                      for x, bias in zip(found, self._biases(q.dtype), strict=True))
        if self.prefix_vector is None or not self.prefix:
            return rows, cols, None
        return rows, cols, q @ (self.prefix_vector * scale)[..., None].to(q.dtype)

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
        inputs = {name: x if x.dim() == 4 else x[None]
                  for name, x in (('rows', self.rows), ('cols', self.cols))}
        if self.prefix and self.prefix_vector is not None:
            inputs['prefix'] = self.prefix_vector.reshape(-1, 1, q.shape[-1])
        inputs = {name: (x * scale).to(q.dtype) for name, x in inputs.items()}
        if self.row_bias is not None and self.col_bias is not None:
            inputs.update(row_bias=self.row_bias.to(q.dtype), col_bias=self.col_bias.to(q.dtype))
        return AxisWriter(inputs, layout, self.halves)

    def score_mod(self, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
        """See :class:`Term`."""
        rows, cols, prefix = self.products(q, scale)
        p, hk, wk = self.prefix, rows.shape[-1], cols.shape[-1]
        cell = torch.arange(hk * wk, device=q.device, dtype=torch.int32)
        row_of, col_of = cell // wk, cell % wk
        if p:  # one more row and column: a kernel then decides nothing pair by pair
            row_of, col_of = F.pad(row_of, (p, 0), value=hk), F.pad(col_of, (p, 0), value=wk)
            # Softmax ignores what is added to all keys of a prefix query.
            rows = F.pad(rows, (0, 1)) if prefix is None else torch.cat(
                (rows, F.pad(prefix[:, :, p:], (0, 0, p, 0))), -1)
            cols = F.pad(cols, (0, 1))
        return lambda b, h, i, j: rows[b, h, i, row_of[j]] + cols[b, h, i, col_of[j]]

    def look_ups(self, q: Tensor, k: Tensor) -> int:
        """See :class:`Term`."""
        keys = max(self.rows.shape[-2], self.cols.shape[-2]) + (self.prefix > 0)
        return math.prod(q.shape[:3]) * keys


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

    def _of(self, work: Work, name: str) -> Tensor | None:
        """An input for the heads of a piece, if it is there."""
        if name not in self.names:
            return None
        return pick_heads(self.inputs[self.names.index(name)], work.piece)

    def _add(self, work: Work, name: str, grad: Tensor) -> None:
        if name in self.names:
            add_by_head(self.grads[self.names.index(name)], work.piece, grad)

    def begin(self, work: Work) -> None:
        """Products of all queries: rows (heads, Lq, Hk), columns and prefix keys likewise."""
        prefix = self.layout.prefix
        cells = work.q[:, prefix:].unflatten(1, self.hw)  # type: ignore[no-untyped-call]
        rows, cols = self._of(work, 'rows'), self._of(work, 'cols')
        assert rows is not None and cols is not None
        head = 'n' if rows.dim() == 4 else ''
        self._products = [
            torch.einsum(f'nyxd,{head}ykd->nyxk', cells[..., self.by_row], rows),
            torch.einsum(f'nyxd,{head}xkd->nyxk', cells[..., self.by_col], cols)]
        by_row, by_col = self._of(work, 'row_bias'), self._of(work, 'col_bias')
        if by_row is not None and by_col is not None:
            self._products[0] += by_row.unsqueeze(-2)
            self._products[1] += by_col.unsqueeze(-3)
        vector = self._of(work, 'prefix')
        if vector is not None:
            self._products.append(cells @ vector.transpose(-2, -1).unsqueeze(-3))
        self._products = [F.pad(x.flatten(1, 2), (0, 0, prefix, 0)) if prefix else x.flatten(1, 2)
                          for x in self._products]
        if self.grads:
            self._grads = [torch.empty_like(x) for x in self._products]

    def _grid(self, logits: Tensor) -> Tensor:
        """Cells of (heads, queries, keys) as (heads, queries, Hk, Wk)."""
        cells: Tensor = logits[..., self.layout.cells].unflatten(  # type: ignore[no-untyped-call]
            -1, self.key_hw)
        return cells

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        rows, cols, *others = (x[:, work.piece.queries] for x in self._products)
        grid, prefix = self._grid(logits), logits[..., self.layout.prefix_keys]
        if add:
            grid += rows[..., None]
            grid += cols[..., None, :]
        else:
            torch.add(rows[..., None], cols[..., None, :], out=grid)
            prefix.zero_()
        if others:
            prefix += others[0]

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base; complete after all queries."""
        rows, cols, *others = (x[:, work.piece.queries] for x in self._grads)
        grid = self._grid(grad)
        torch.sum(grid, -1, out=rows)
        torch.sum(grid, -2, out=cols)
        if others:
            torch.sum(grad[..., self.layout.prefix_keys], -1, keepdim=True, out=others[0])

    def end(self, work: Work) -> None:
        """Gradients of queries and inputs."""
        p = self.layout.prefix
        cells = work.q[:, p:].unflatten(1, self.hw)  # type: ignore[no-untyped-call]
        by_row, by_col, *others = (x[:, p:].unflatten(1, self.hw)  # type: ignore[no-untyped-call]
                                   for x in self._grads)
        rows, cols = self._of(work, 'rows'), self._of(work, 'cols')
        assert rows is not None and cols is not None
        head = 'n' if rows.dim() == 4 else ''
        grad_q = work.grad_q[:, p:].unflatten(1, self.hw)  # type: ignore[no-untyped-call]
        grad_q[..., self.by_row] += torch.einsum(f'nyxk,{head}ykd->nyxd', by_row, rows)
        grad_q[..., self.by_col] += torch.einsum(f'nyxk,{head}xkd->nyxd', by_col, cols)
        self._add(work, 'rows', torch.einsum('nyxk,nyxd->nykd', by_row, cells[..., self.by_row]))
        self._add(work, 'cols', torch.einsum('nyxk,nyxd->nxkd', by_col, cells[..., self.by_col]))
        self._add(work, 'row_bias', by_row.sum(2))
        self._add(work, 'col_bias', by_col.sum(1))
        vector = self._of(work, 'prefix')
        if vector is not None:
            grad_q += others[0] * vector.unsqueeze(-3)
            self._add(work, 'prefix', (others[0] * cells).sum((1, 2))[:, None])


def axis_products(by_row: Tensor, by_col: Tensor, rows: Tensor, cols: Tensor
                  ) -> tuple[Tensor, Tensor]:
    """Products of queries with the vectors of their row and of their column offsets.

    Args:
        by_row, by_col: (B, heads, Hq * Wq, d) what meets the rows and the columns.
        rows: ([heads], Hq, Hk, d); cols: ([heads], Wq, Wk, d).

    Returns:
        (B, heads, Hq, Wq, Hk) and (B, heads, Hq, Wq, Wk). One matrix product for each row (column)
        of queries with the Hk (Wk) vectors it needs: no product is thrown away and none gathered.
    """
    shape = (*by_row.shape[:2], rows.shape[-3], cols.shape[-3], -1)
    head = 'h' if rows.dim() == 4 else ''
    return (torch.einsum(f'bhyxd,{head}ykd->bhyxk', by_row.reshape(shape), rows),
            torch.einsum(f'bhyxd,{head}xkd->bhyxk', by_col.reshape(shape), cols))


def join_axes(rows: Tensor, cols: Tensor) -> Tensor:
    """Sum of a row term (..., Hk) and a column term (..., Wk) for every pair, (..., Hk * Wk)."""
    return (rows[..., :, None] + cols[..., None, :]).flatten(-2)


def pick_entries(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table ([heads], n, d) for each pair: ([heads], *index.shape, d)."""
    picked: Tensor = table.index_select(-2, index.flatten())
    return picked.view(*table.shape[:-2], *index.shape, table.shape[-1])
