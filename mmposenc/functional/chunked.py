"""Contextual iRPE attention over a few query rows at a time, without an (Lq, Lk) tensor.

Logits are runs of expanded look-ups (:mod:`.row_patterns`) with the product of queries and keys
added in place by the same call that computes it. Backward computes the weights again.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .chunked_terms import Chunk, Layout, Sides
from .head_tables import add_table_grad, add_times_table, pick_heads

#: Elements of a buffer of logits; larger ones leave the cache, smaller ones cost more calls.
CHUNK_ELEMENTS = 256 * 1024
#: The same for training that shall take little memory instead.
SMALL_CHUNK_ELEMENTS = 64 * 1024
#: Up to this many (query, key) pairs a head, training keeps the weights instead of computing them
#: again: they then take no more memory than the tokens do.
KEEP_PAIRS = 600 * 600


def chunks(num_heads: int, layout: Layout, elements: int) -> Iterator[Chunk]:
    """Whole heads while several fit in a buffer of so many elements, else rows of one head."""
    row = layout.width * layout.all_key_rows * layout.key_width
    heads = max(1, elements // (row * layout.height))
    rows = layout.height if heads > 1 else max(1, elements // row)
    rows = -(-layout.height // -(-layout.height // rows))
    for first in range(0, num_heads, heads):
        for top in range(0, layout.height, rows):
            yield Chunk(slice(first, min(first + heads, num_heads)), top,
                        min(rows, layout.height - top), 0 if top else layout.prefix)



class _Attention(torch.autograd.Function):
    """softmax(q k^T + terms) v over chunks; see :func:`chunked_attention`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table_k: Tensor | None,
                table_q: Tensor | None, table_v: Tensor | None, bias: Tensor | None,
                padding: Tensor | None, sides: Sides, scale: float, keep: bool,
                small: bool) -> Tensor:
        ctx.sides, ctx.scale = sides, scale
        ctx.elements = SMALL_CHUNK_ELEMENTS if small else CHUNK_ELEMENTS
        work = _Work(q, k, v, table_k, table_q, table_v, bias, padding, sides, scale)
        kept = None
        if keep:
            kept = work.kept = q.new_empty(q.shape[0], q.shape[1], work.k.shape[1])
        ctx.save_for_backward(q, k, v, table_k, table_q, table_v, bias, padding, kept)
        out = torch.empty_like(q)
        for chunk in chunks(q.shape[0], sides.layout, ctx.elements):
            weights = work.new_weights(chunk)
            part = work.queries(out, chunk)
            torch.bmm(weights, work.v[chunk.heads], out=part)
            if table_v is not None and sides.on_keys is not None:
                sums = sides.on_keys.sums(weights, chunk, 1.0)
                add_times_table(part, sums, table_v, chunk.heads)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table_k, table_q, table_v, bias, padding, kept = ctx.saved_tensors
        work = _Work(q, k, v, table_k, table_q, table_v, bias, padding, ctx.sides, ctx.scale)
        work.kept = kept
        # Every row of the first three is written before it is added to.
        grads: list[Tensor | None] = [torch.empty_like(each) for each in (q, work.k, work.v)]
        grads += [None if each is None else torch.zeros_like(each)
                  for each in (table_k, table_q, table_v, bias)]
        grad = grad.contiguous()
        for chunk in chunks(q.shape[0], work.layout, ctx.elements):
            work.add_gradients(chunk, grad, grads)
        for index in (1, 2):
            total = grads[index]
            assert total is not None
            grads[index] = _prefix_first(total, work.layout)
        return (*grads, None, None, None, None, None)


def _product(a: Tensor, b: Tensor, out: Tensor, add: bool = False, scale: float = 1.0) -> None:
    """out = a b * scale, or out += a b * scale."""
    # With beta=0 what is in the output does not count.
    torch.baddbmm(out, a, b, beta=float(add), alpha=scale, out=out)


def _prefix_last(x: Tensor, layout: Layout) -> Tensor:
    """Keys (N, Lk, n) with the prefix behind the grid, filled up with zeros to whole rows."""
    if not layout.prefix:
        return x
    cells = layout.key_height * layout.key_width
    out = x.new_zeros(x.shape[0], layout.all_key_rows * layout.key_width, x.shape[2])
    out[:, :cells] = x[:, layout.prefix:]
    out[:, cells:layout.num_keys] = x[:, :layout.prefix]
    return out


def _prefix_first(x: Tensor, layout: Layout) -> Tensor:
    """The adjoint of :func:`_prefix_last`."""
    if not layout.prefix:
        return x
    cells = layout.key_height * layout.key_width
    return torch.cat([x[:, cells:layout.num_keys], x[:, :cells]], 1)


class _Work:
    """Buffers and steps that forward and backward share."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, table_k: Tensor | None,
                 table_q: Tensor | None, table_v: Tensor | None, bias: Tensor | None,
                 padding: Tensor | None, sides: Sides, scale: float) -> None:
        self.scale = scale
        self.q, self.k, self.v = q, _prefix_last(k, sides.layout), _prefix_last(v, sides.layout)
        self.table_k, self.table_q, self.table_v = table_k, table_q, table_v
        self.bias = bias
        self.padding = None
        if padding is not None:
            self.padding = _prefix_last(padding[..., None], sides.layout)[..., 0]
        self.layout, self.on_keys, self.on_queries, self.on_offsets = sides
        self.kept: Tensor | None = None
        self._buffers: dict[str, Tensor] = {}
        self._runs: Tensor | None = None
        self._grad_runs: Tensor | None = None

    def queries(self, x: Tensor, chunk: Chunk) -> Tensor:
        """Rows of x (N, Lq, head_dims) that belong to the chunk."""
        first = self.layout.prefix + chunk.first_row * self.layout.width
        return x[chunk.heads, first - chunk.lead:first + chunk.num_rows * self.layout.width]

    def buffer(self, name: str, chunk: Chunk) -> Tensor:
        """(heads, R * Wq, keys); one allocation for all chunks of full size."""
        shape = (chunk.num_heads, chunk.lead + chunk.num_rows * self.layout.width, self.k.shape[1])
        if name not in self._buffers or self._buffers[name].shape != shape:
            self._buffers[name] = self.q.new_empty(shape)
        return self._buffers[name]

    def weights(self, chunk: Chunk) -> Tensor:
        """Attention weights of a chunk, as kept by forward or computed again."""
        return self.new_weights(chunk) if self.kept is None else self.queries(self.kept, chunk)

    def new_weights(self, chunk: Chunk) -> Tensor:
        """Attention weights of a chunk."""
        q, keys = self.queries(self.q, chunk), self.k[chunk.heads]
        logits = (self.buffer('logits', chunk) if self.kept is None
                  else self.queries(self.kept, chunk))
        filled = False
        if self.bias is not None and self.on_offsets is not None:
            self.on_offsets.plan(chunk).spread(self.bias, logits)
            filled = True
        if self.table_k is not None and self.on_keys is not None:
            self.on_keys.fill(q, pick_heads(self.table_k, chunk.heads), chunk, logits)
            filled = True
        if self.table_q is not None and self.on_queries is not None:
            if chunk.first_row == 0:
                self._runs = self.on_queries.runs(keys, pick_heads(self.table_q, chunk.heads))
            assert self._runs is not None
            plan = self.on_queries.plan(chunk)
            if filled:
                other = self.buffer('other', chunk)
                plan.spread(self._runs, other)
                logits += other
            else:
                plan.spread(self._runs, logits)
            filled = True
        _product(q, keys.transpose(1, 2), logits, filled, self.scale)
        if self.layout.num_keys < logits.shape[2]:
            logits[..., self.layout.num_keys:] = float('-inf')
        if self.padding is not None:
            logits.masked_fill_(self.padding[chunk.heads, None], float('-inf'))
        return torch.softmax(logits, -1, out=logits)

    def add_gradients(self, chunk: Chunk, grad: Tensor, grads: list[Tensor | None]) -> None:
        """Add what a chunk gives to the gradients of q, k, v and the tables."""
        grad_q, grad_k, grad_v, grad_table_k, grad_table_q, grad_table_v, grad_bias = grads
        assert grad_q is not None and grad_k is not None and grad_v is not None
        heads = chunk.heads
        g, q = self.queries(grad, chunk), self.queries(self.q, chunk)
        weights = self.weights(chunk)
        _product(weights.transpose(1, 2), g, grad_v[heads], add=chunk.first_row > 0)
        grad_logits = self.buffer('other', chunk)
        values = self.v[heads].transpose(1, 2)
        if grad_table_v is not None and self.table_v is not None and self.on_keys is not None:
            self.on_keys.fill(g, pick_heads(self.table_v, heads).transpose(-1, -2), chunk,
                              grad_logits)
            _product(g, values, grad_logits, add=True)
            add_table_grad(grad_table_v, heads, self.on_keys.sums(weights, chunk, 1.0), g)
        else:
            torch.bmm(g, values, out=grad_logits)
        torch._softmax_backward_data(grad_logits, weights, -1, weights.dtype,
                                     grad_input=grad_logits)
        part = self.queries(grad_q, chunk)
        _product(grad_logits, self.k[heads], part, scale=self.scale)
        _product(grad_logits.transpose(1, 2), q, grad_k[heads], chunk.first_row > 0, self.scale)
        if grad_table_k is not None and self.table_k is not None and self.on_keys is not None:
            sums = self.on_keys.sums(grad_logits, chunk, 0.0)
            add_times_table(part, sums, self.table_k.transpose(1, 2), heads)
            add_table_grad(grad_table_k, heads, q, sums)
        if grad_bias is not None and self.on_offsets is not None:
            self.on_offsets.add_sums(grad_logits, chunk, grad_bias)
        if grad_table_q is not None:
            self._add_query_side(chunk, grad_logits, grad_k, grad_table_q)

    def _add_query_side(self, chunk: Chunk, grad_logits: Tensor, grad_k: Tensor,
                        grad_table: Tensor) -> None:
        """Gradients of the table on queries; complete after the last query rows of some heads."""
        assert self.on_queries is not None and self.table_q is not None
        runs = self.on_queries.plan(chunk).sums(grad_logits, self.layout.key_width)
        if chunk.first_row == 0 or self._grad_runs is None:
            self._grad_runs = runs
        else:
            self._grad_runs += runs
        if chunk.first_row + chunk.num_rows < self.layout.height:
            return
        sums = self.on_queries.lookup_sums(self._grad_runs, chunk.num_heads)
        add_times_table(grad_k[chunk.heads], sums, self.table_q.transpose(1, 2), chunk.heads)
        add_table_grad(grad_table, chunk.heads, self.k[chunk.heads], sums)


def chunked_attention(q: Tensor, k: Tensor, v: Tensor, sides: Sides, *,
                      table_k: Tensor | None = None, table_q: Tensor | None = None,
                      table_v: Tensor | None = None, bias: Tensor | None = None,
                      padding: Tensor | None = None, scale: float = 1.0,
                      small_training: bool = False) -> Tensor:
    """Attention with terms of iRPE.

    Args:
        q: (N, Lq, head_dims), prefix tokens first; N = images * heads. All contiguous.
        k, v: (N, Lk, head_dims).
        sides: what the terms need to know about the grids.
        table_k, table_q: (heads or 1, head_dims, channels), None where there is no such term;
            the channel of prefix tokens, if there are any, last.
        table_v: (heads or 1, channels, head_dims).
        bias: runs (heads or 1, Wq, patterns, Wk); takes the place of the tables.
        padding: (N, Lk) bool, True = padding.
        scale: factor of q k^T alone: queries and keys meet their tables as they are.
        small_training: smaller buffers where training computes the weights again; it then takes
            half as long again.

    Returns:
        (N, Lq, head_dims).
    """
    leaves = (q, k, v, table_k, table_q, table_v, bias)
    # Inside a Function neither is known: the gradient mode is off there.
    trains = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves)
    keep = trains and q.shape[1] * k.shape[1] <= KEEP_PAIRS
    out: Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
        *leaves, padding, sides, scale, keep, small_training and trains and not keep)
    return out
