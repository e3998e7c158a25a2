"""Contextual iRPE attention on short sequences: look-ups are read, and their gradients added up, by
an index of all pairs, a few heads at a time in buffers that stay in the cache.

The row chunks of :mod:`.chunked` need no such index and win on long sequences; on short ones their
runs are too short to be copied faster than numbers are picked.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .head_tables import add_table_grad, add_times_table, times_table

#: Elements of a buffer of logits (at least one head): whole heads, not too many for the cache.
CHUNK_ELEMENTS = 128 * 1024


class PairIndex(NamedTuple):
    """Where each pair (i, j), flattened to (1, Lq * Lk), finds its bucket.

    on_keys: places in the look-up (Lq, channels) of the queries, one for each table that is added
    up ('cross' has two); also those of the values' term. on_queries: in that (Lk, channels) of the
    keys.
    """

    on_keys: tuple[Tensor, ...] = ()
    on_queries: tuple[Tensor, ...] = ()


def pair_index(ids: Tensor, channels: int, by_key: bool = False) -> Tensor:
    """Places of all pairs in look-ups of ``channels`` numbers a token.

    Args:
        ids: (Lq, Lk) channel of each pair; with ``by_key`` (Lk, Lq), by the look-up of the key.

    Returns:
        (1, Lq * Lk) long.
    """
    first = torch.arange(ids.shape[0], device=ids.device)[:, None] * channels
    places = ids + first
    return (places.t() if by_key else places).reshape(1, -1)


def _read(lookup: Tensor, index: tuple[Tensor, ...], out: Tensor, add: bool) -> None:
    """out (heads, Lq, Lk) = or += the numbers of each pair in lookup (heads, L, channels)."""
    lookup, out = lookup.flatten(1), out.flatten(1)
    for each in index:
        each = each.expand(out.shape[0], -1)
        if add:
            out += lookup.gather(1, each)
        else:
            torch.gather(lookup, 1, each, out=out)
        add = True


def _add_up(logits: Tensor, index: tuple[Tensor, ...], length: int, channels: int) -> Tensor:
    """The adjoint: sums (heads, length, channels) of the numbers of each bucket."""
    sums = logits.new_zeros(logits.shape[0], length, channels)
    flat, logits = sums.view(logits.shape[0], -1), logits.flatten(1)
    for each in index:
        flat.scatter_add_(1, each.expand(logits.shape[0], -1), logits)
    return sums


class _IndexedAttention(torch.autograd.Function):
    """softmax(q k^T * scale + terms) v; see :func:`indexed_attention`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table_k: Tensor | None,
                table_q: Tensor | None, table_v: Tensor | None, index: PairIndex,
                padding: Tensor | None, scale: float, trains: bool) -> Tensor:
        number, len_q, _ = q.shape
        step = _step(q, k)
        weights = q.new_empty(number if trains else min(step, number), len_q, k.shape[1])
        out = torch.empty_like(q)
        for first in range(0, number, step):
            heads = slice(first, min(first + step, number))
            p = weights[heads] if trains else weights[:heads.stop - first]
            filled = False
            if table_k is not None:
                _read(times_table(q[heads], table_k, heads), index.on_keys, p, filled)
                filled = True
            if table_q is not None:
                _read(times_table(k[heads], table_q, heads), index.on_queries, p, filled)
                filled = True
            torch.baddbmm(p, q[heads], k[heads].transpose(1, 2), beta=float(filled), alpha=scale,
                          out=p)
            if padding is not None:
                p.masked_fill_(padding[heads, None], float('-inf'))
            torch.softmax(p, -1, out=p)
            torch.bmm(p, v[heads], out=out[heads])
            if table_v is not None:
                sums = _add_up(p, index.on_keys, len_q, table_v.shape[1])
                add_times_table(out[heads], sums, table_v, heads)
        ctx.save_for_backward(q, k, v, table_k, table_q, table_v, weights if trains else None)
        ctx.index, ctx.scale = index, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table_k, table_q, table_v, weights = ctx.saved_tensors
        index, scale, grad = ctx.index, ctx.scale, grad.contiguous()
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        grad_table_k, grad_table_q, grad_table_v = (
            None if x is None else torch.zeros_like(x) for x in (table_k, table_q, table_v))
        number, step = q.shape[0], _step(q, k)
        buffer = q.new_empty(min(step, number), q.shape[1], k.shape[1])
        for first in range(0, number, step):
            heads = slice(first, min(first + step, number))
            p, g, grad_p = weights[heads], grad[heads], buffer[:heads.stop - first]
            torch.bmm(p.transpose(1, 2), g, out=grad_v[heads])
            if table_v is not None and grad_table_v is not None:
                add_table_grad(grad_table_v, heads, _add_up(p, index.on_keys, q.shape[1],
                                                            table_v.shape[1]), g)
                _read(times_table(g, table_v.transpose(1, 2), heads), index.on_keys, grad_p, False)
            torch.baddbmm(grad_p, g, v[heads].transpose(1, 2), beta=float(table_v is not None),
                          out=grad_p)
            torch.ops.aten._softmax_backward_data(grad_p, p, -1, p.dtype, grad_input=grad_p)
            # With beta=0 what is in the output does not count.
            torch.baddbmm(grad_q[heads], grad_p, k[heads], beta=0, alpha=scale, out=grad_q[heads])
            torch.baddbmm(grad_k[heads], grad_p.transpose(1, 2), q[heads], beta=0, alpha=scale,
                          out=grad_k[heads])
            for x, grad_x, table, total, where in (
                    (q, grad_q, table_k, grad_table_k, index.on_keys),
                    (k, grad_k, table_q, grad_table_q, index.on_queries)):
                if table is not None and total is not None:
                    sums = _add_up(grad_p, where, x.shape[1], table.shape[2])
                    add_times_table(grad_x[heads], sums, table.transpose(1, 2), heads)
                    add_table_grad(total, heads, x[heads], sums)
        return (grad_q, grad_k, grad_v, grad_table_k, grad_table_q, grad_table_v, None, None, None,
                None)


def _step(q: Tensor, k: Tensor) -> int:
    """Heads worked on at a time."""
    return max(1, CHUNK_ELEMENTS // (q.shape[1] * k.shape[1]))


def indexed_attention(q: Tensor, k: Tensor, v: Tensor, index: PairIndex, *,
                      table_k: Tensor | None = None, table_q: Tensor | None = None,
                      table_v: Tensor | None = None, padding: Tensor | None = None,
                      scale: float = 1.0) -> Tensor:
    """Attention whose logits also have q_i . table_k[b(i, j)] and k_j . table_q[b(j, i)], and whose
    values table_v[b(i, j)]; training keeps the weights.

    Args:
        q: (N, Lq, head_dims), prefix tokens first; N = images * heads. All contiguous.
        k, v: (N, Lk, head_dims).
        index: from :func:`pair_index`; the buckets b.
        table_k, table_q: (heads or 1, head_dims, channels), None where there is no such term.
        table_v: (heads or 1, channels, head_dims).
        padding: (N, Lk) bool, True = padding.
        scale: factor of q k^T alone: queries and keys meet their tables as they are.

    Returns:
        (N, Lq, head_dims).
    """
    leaves = (q, k, v, table_k, table_q, table_v)
    # Inside a Function neither is known: the gradient mode is off there.
    trains = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves)
    out: Tensor = _IndexedAttention.apply(  # type: ignore[no-untyped-call]
        *leaves, index, padding, scale, trains)
    return out
