"""How each kind of term writes a piece of the logits and takes that piece's gradient.

:mod:`.driver` runs them; :mod:`.terms` says which term is written by which.
"""
from __future__ import annotations

import copy
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from .layout import Layout, Piece
from .pairs import PairIndex
from .runs import Runs, RunsByKey
from .tables import add_by_head, add_table_grad, add_times_table, pick_heads, times_table

_Writer = TypeVar('_Writer', bound='Writer')


class Work(NamedTuple):
    """One piece, as writers see it.

    q: (heads, queries, head_dims), not scaled; k: (heads, keys, head_dims) in the order of the
    layout. grad_q, grad_k: their gradients so far, in backward. other: a buffer as large as the
    logits, free to use while logits are written.
    """

    piece: Piece
    q: Tensor
    k: Tensor
    other: Tensor
    grad_q: Tensor
    grad_k: Tensor


class Writer:
    """Base. ``inputs`` may need gradients; all else is plan. Heads of a piece are those of its
    images one after the other."""

    #: What the writer needs of the pieces, see :class:`~.layout.Cut`.
    whole_rows = False
    most_queries: int | None = None
    #: The term as autograd sees it.
    inputs: tuple[Tensor, ...] = ()
    #: Sums of the gradients of ``inputs``, in backward.
    grads: tuple[Tensor, ...] = ()

    def bind(self: _Writer, inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...] = ()) -> _Writer:
        """A copy for one direction of one call."""
        bound = copy.copy(self)
        bound.inputs, bound.grads = inputs, grads
        return bound

    def begin(self, work: Work) -> None:
        """Called with all queries before the pieces of some heads."""

    def end(self, work: Work) -> None:
        """Called after them, in backward."""


class LogitWriter(Writer):
    """A term of the logits."""

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """Write the term to logits (heads, queries, keys), or add it."""
        raise NotImplementedError

    def gradient(self, work: Work, grad: Tensor) -> None:
        """Add to the gradients, from that of the logits."""
        raise NotImplementedError


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


class ValueTableWriter(Writer):
    """sum_j a_ij table[b(i, j)]; table (heads or 1, buckets, head_dims)."""

    def __init__(self, table: Tensor, spread: PairIndex | Runs) -> None:
        self.inputs, self.spread = (table,), spread
        self.whole_rows = isinstance(spread, Runs)

    def add(self, work: Work, weights: Tensor, out: Tensor) -> None:
        """Add the term to the output (heads, queries, head_dims)."""
        add_times_table(out, self.spread.sums(weights, work.piece), self.inputs[0], work.piece)

    def write_gradient(self, work: Work, grad: Tensor, out: Tensor) -> None:
        """Write the gradient of the weights, from that of the output."""
        lookup = times_table(grad, self.inputs[0].transpose(1, 2), work.piece)
        self.spread.read(lookup, work.piece, out)

    def table_gradient(self, work: Work, weights: Tensor, grad: Tensor) -> None:
        """Add to the table's gradient."""
        add_table_grad(self.grads[0], work.piece, self.spread.sums(weights, work.piece), grad)


class AxisWriter(LogitWriter):
    """q_i . rows[r_i, r_j] + q_i . cols[c_i, c_j] + biases of the two axes, and q_i . prefix of
    cells with prefix keys; nothing for prefix queries.

    Inputs: rows (heads or 1, Hq, Hk, d), cols (heads or 1, Wq, Wk, d), both with zeros for channels
    they do not meet; row_bias (heads, Hq, Hk), col_bias (heads, Wq, Wk); prefix (heads or 1, 1, d).
    """

    def __init__(self, inputs: dict[str, Tensor], layout: Layout) -> None:
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
        self._products = [torch.einsum(f'nyxd,{head}ykd->nyxk', cells, rows),
                          torch.einsum(f'nyxd,{head}xkd->nyxk', cells, cols)]
        by_row, by_col = self._of(work, 'row_bias'), self._of(work, 'col_bias')
        if by_row is not None and by_col is not None:
            self._products[0] += by_row[..., None, :]
            self._products[1] += by_col[:, None]
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
        grad_q = torch.einsum(f'nyxk,{head}ykd->nyxd', by_row, rows)
        grad_q += torch.einsum(f'nyxk,{head}xkd->nyxd', by_col, cols)
        self._add(work, 'rows', torch.einsum('nyxk,nyxd->nykd', by_row, cells))
        self._add(work, 'cols', torch.einsum('nyxk,nyxd->nxkd', by_col, cells))
        self._add(work, 'row_bias', by_row.sum(2))
        self._add(work, 'col_bias', by_col.sum(1))
        vector = self._of(work, 'prefix')
        if vector is not None:
            grad_q += others[0] * vector.unsqueeze(-3)
            self._add(work, 'prefix', (others[0] * cells).sum((1, 2))[:, None])
        work.grad_q[:, p:] += grad_q.flatten(1, 2)


class ShiftWriter(LogitWriter):
    """A bias by offset: runs (heads or 1, Wq, row offsets, Wk) of numbers that pairs of columns
    have at each row offset, key minus query, and (heads or 1, 3) for pairs with a prefix token.

    All keys of a row of queries are then one slice of the runs: that of the next row begins a row
    further up.
    """

    whole_rows = True

    def __init__(self, runs: Tensor, prefix: Tensor | None, layout: Layout) -> None:
        self.inputs = (runs,) if prefix is None else (runs, prefix)
        self.layout = layout
        assert layout.query is not None and layout.key is not None
        self.height, self.width = layout.query.hw
        self.stride, self.step = int(layout.query.stride_h), int(layout.key.stride_h)

    def _rows(self, work: Work, runs: Tensor, logits: Tensor) -> list[tuple[Tensor, Tensor]]:
        """For each row of queries its part of the runs (heads or 1, Wq, Hk, Wk), and of the logits
        with images in front."""
        assert self.layout.key is not None
        piece, key = work.piece, self.layout.key
        runs = runs[piece.heads] if runs.shape[0] > 1 else runs
        cells: Tensor = piece.by_image(logits)[..., self.layout.cells].unflatten(  # type: ignore[no-untyped-call]
            -1, key.hw)
        pairs = []
        for row in range(piece.num_rows):
            first = self.stride * (self.height - 1 - piece.first_row - row)
            last = first + self.step * (key.height - 1) + 1
            at = piece.lead + row * self.width
            pairs.append((runs[:, :, first:last:self.step], cells[:, :, at:at + self.width]))
        return pairs

    def _with_prefix(self, work: Work, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (images, heads, ...) of prefix to cell, cell to prefix, prefix to prefix."""
        logits, lead = work.piece.by_image(logits), work.piece.lead
        keys = self.layout.prefix_keys
        return (logits[:, :, :lead, self.layout.cells], logits[:, :, lead:, keys],
                logits[:, :, :lead, keys])

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        for source, target in self._rows(work, self.inputs[0], logits):
            if add:
                target += source
            else:
                target.copy_(source)
        kinds = self._with_prefix(work, logits)
        for kind, target in enumerate(kinds):
            if not add:
                target.zero_()
            if len(self.inputs) > 1:
                bias = self.inputs[1]
                bias = bias[work.piece.heads] if bias.shape[0] > 1 else bias
                target += bias[:, kind, None, None]

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base."""
        for total, part in self._rows(work, self.grads[0], grad):
            part = part[0] if part.shape[0] == 1 else part.sum(0)
            total += part.sum(0, keepdim=True) if total.shape[0] < part.shape[0] else part
        if len(self.inputs) > 1:
            total = self.grads[1]
            total = total[work.piece.heads] if total.shape[0] > 1 else total
            for kind, part in enumerate(self._with_prefix(work, grad)):
                sums = part.sum((0, 2, 3))
                total[:, kind] += sums if total.shape[0] > 1 else sums.sum()


class DenseWriter(LogitWriter):
    """A bias (B or 1, heads or 1, Lq or 1, keys or 1), keys in the order of the layout."""

    def __init__(self, bias: Tensor) -> None:
        self.inputs = (bias,)

    def write(self, work: Work, logits: Tensor, add: bool) -> None:
        """As the base."""
        logits = work.piece.by_image(logits)
        bias = work.piece.of(self.inputs[0])
        if add:
            logits += bias
        else:
            logits.copy_(bias)

    def gradient(self, work: Work, grad: Tensor) -> None:
        """As the base."""
        total = work.piece.of(self.grads[0])
        total += work.piece.by_image(grad).sum_to_size(total.shape)


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
