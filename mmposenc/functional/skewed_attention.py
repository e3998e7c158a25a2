"""Attention with vectors of the offset in a sequence, a few queries at a time.

A query meets the vectors of all offsets that some query of its chunk has; the products by key are a
view of them, each row one place further to the left. The product of queries and keys is added to
that view by the call that computes it.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .head_tables import add_table_grad, add_times_table, times_table

#: Queries worked on at a time: a chunk computes this many products too many a query.
QUERIES = 64
#: Elements of a buffer of logits: as many heads at a time.
CHUNK_ELEMENTS = 256 * 1024
#: Up to this many (query, key) pairs a head, training keeps the weights instead of computing them
#: again.
KEEP_PAIRS = 600 * 600

_Part = tuple[slice, slice]


class _SkewedAttention(torch.autograd.Function):
    """q, k, v (N, L, d), table (1 or heads, 2 L - 1, d), all contiguous."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table: Tensor, padding: Tensor | None,
                scale: float, keep: bool) -> Tensor:
        out = torch.empty_like(q)
        kept = q.new_empty(q.shape[0], q.shape[1], q.shape[1]) if keep else None
        for part in _parts(q):
            weights = _weights(q, k, table, padding, scale, part,
                               None if kept is None else kept[part])
            torch.bmm(weights, v[part[0]], out=out[part])
        ctx.save_for_backward(q, k, v, table, padding, kept)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table, padding, kept = ctx.saved_tensors
        scale, grad = ctx.scale, grad.contiguous()
        grad_q = torch.empty_like(q)
        grad_k, grad_v, grad_table = (torch.zeros_like(x) for x in (k, v, table))
        for part in _parts(q):
            heads, queries = part
            if kept is not None:
                weights = kept[part]
            else:
                weights = _weights(q, k, table, padding, scale, part, None)
            g, some = grad[part], q[part]
            grad_v[heads].baddbmm_(weights.transpose(1, 2), g)
            logits = torch.bmm(g, v[heads].transpose(1, 2))
            torch._softmax_backward_data(logits, weights, -1, weights.dtype,
                                         grad_input=logits)
            logits *= scale
            torch.bmm(logits, k[heads], out=grad_q[part])
            grad_k[heads].baddbmm_(logits.transpose(1, 2), some)
            offsets = _offsets(queries, q.shape[1])
            lookup = logits.new_zeros(*logits.shape[:2], offsets.stop - offsets.start)
            _by_key(lookup, q.shape[1]).copy_(logits)
            add_times_table(grad_q[part], lookup, table[:, offsets], heads)
            add_table_grad(grad_table[:, offsets], heads, lookup, some)
        return grad_q, grad_k, grad_v, grad_table, None, None, None


def _parts(q: Tensor) -> list[_Part]:
    """Heads and queries of each chunk."""
    number, length, _ = q.shape
    rows = min(QUERIES, length)
    heads = max(1, CHUNK_ELEMENTS // (rows * length))
    return [(slice(head, min(head + heads, number)), slice(first, min(first + rows, length)))
            for head in range(0, number, heads) for first in range(0, length, rows)]


def _offsets(queries: slice, length: int) -> slice:
    """Rows of the table, by key minus query + length - 1, that some of these queries use."""
    return slice(length - queries.stop, 2 * length - 1 - queries.start)


def _by_key(lookup: Tensor, length: int) -> Tensor:
    """View (heads, n, length) by key of products by offset (heads, n, length + n - 1): row i starts
    at the offset n - 1 - i."""
    heads, rows, offsets = lookup.shape
    return lookup.as_strided((heads, rows, length), (rows * offsets, max(offsets - 1, 1), 1),
                             lookup.storage_offset() + rows - 1)


def _weights(q: Tensor, k: Tensor, table: Tensor, padding: Tensor | None, scale: float, part: _Part,
             out: Tensor | None) -> Tensor:
    """Attention weights of a chunk, in ``out`` if that is given."""
    heads, queries = part
    used = table[:, _offsets(queries, q.shape[1])].transpose(1, 2)
    logits = _by_key(times_table(q[part], used, heads), q.shape[1])
    logits.baddbmm_(q[part], k[heads].transpose(1, 2), beta=scale, alpha=scale)
    if padding is not None:
        logits.masked_fill_(padding[heads, None], float('-inf'))
    return torch.softmax(logits, -1) if out is None else torch.softmax(logits, -1, out=out)


def skewed_attention(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *,
                     padding: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """softmax((q_i . k_j + q_i . table[j - i + L - 1]) * scale) v.

    Args:
        q, k, v: (N, L, head_dims), N = images * heads, contiguous.
        table: (heads or 1, 2 L - 1, head_dims).
        padding: (N, L) bool, True = padding.
        scale: factor of the logits.

    Returns:
        (N, L, head_dims).
    """
    trains = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, table))
    out: Tensor = _SkewedAttention.apply(  # type: ignore[no-untyped-call]
        q, k, v, table, padding, scale, trains and q.shape[1] ** 2 <= KEEP_PAIRS)
    return out
