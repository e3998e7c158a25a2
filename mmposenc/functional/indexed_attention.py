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

#: Elements of a buffer of logits (at least one head), for inference and in training, where there
#: are more buffers: whole heads, not too many for the cache.
CHUNK_ELEMENTS = 256 * 1024
TRAINING_CHUNK_ELEMENTS = 80 * 1024


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


class _Sums:
    """The adjoint of :func:`_read`: sums of the numbers of each bucket.

    Neighbours often share a bucket, and each addition would wait for the one before: they are
    added up in two halves in turn, a fourth faster.
    """

    def __init__(self, index: tuple[Tensor, ...], len_q: int, len_k: int, channels: int,
                 by_key: bool = False) -> None:
        self.length, self.channels = (len_k if by_key else len_q), channels
        row = torch.arange(len_q, device=index[0].device)[:, None]
        column = torch.arange(len_k, device=index[0].device)
        first, second = (column, row % 2) if by_key else (row, column % 2)
        self.index = [(each.view(len_q, len_k) + first * channels).add_(second * channels)
                      .view(1, -1) for each in index]

    def __call__(self, logits: Tensor) -> Tensor:
        """(heads, Lq, Lk) to (heads, length, channels)."""
        heads, logits = logits.shape[0], logits.flatten(1)
        sums = logits.new_zeros(heads, self.length * 2 * self.channels)
        for each in self.index:
            sums.scatter_add_(1, each.expand(heads, -1), logits)
        even, odd = sums.view(heads, self.length, 2, self.channels).unbind(2)
        return even + odd


class _IndexedAttention(torch.autograd.Function):
    """softmax(q k^T * scale + terms) v; see :func:`indexed_attention`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, table_k: Tensor | None,
                table_q: Tensor | None, table_v: Tensor | None, index: PairIndex,
                padding: Tensor | None, scale: float, trains: bool) -> Tensor:
        chunks = _chunks(q, k, trains)
        weights = q.new_empty(q.shape[0] if trains else chunks[0].stop, q.shape[1], k.shape[1])
        out = torch.empty_like(q)
        # Split beforehand: slicing every tensor for every chunk is a tenth of the time.
        values = _sums(table_v, 1, index.on_keys, q, k)
        for heads, q_, k_, v_, out_ in zip(chunks, *_split(chunks, q, k, v, out), strict=True):
            p = weights[heads] if trains else weights[:heads.stop - heads.start]
            if table_k is not None:
                _read(times_table(q_, table_k, heads), index.on_keys, p, False)
            if table_q is not None:
                _read(times_table(k_, table_q, heads), index.on_queries, p, table_k is not None)
            filled = table_k is not None or table_q is not None
            p.baddbmm_(q_, k_.transpose(1, 2), beta=float(filled), alpha=scale)
            if padding is not None:
                p.masked_fill_(padding[heads, None], float('-inf'))
            torch.softmax(p, -1, out=p)
            torch.bmm(p, v_, out=out_)
            if table_v is not None and values is not None:
                add_times_table(out_, values(p), table_v, heads)
        ctx.save_for_backward(q, k, v, table_k, table_q, table_v, weights if trains else None)
        ctx.index, ctx.scale = index, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, table_k, table_q, table_v, weights = ctx.saved_tensors
        index, scale, grad = ctx.index, ctx.scale, grad.contiguous()
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        # Those of keys and queries the other way around, which their product writes faster.
        grad_table_k, grad_table_q, grad_table_v = (
            None if x is None else torch.zeros_like(x, memory_format=torch.contiguous_format)
            for x in (_turned(table_k), _turned(table_q), table_v))
        by_query = _sums(table_k, 2, index.on_keys, q, k)
        by_key = _sums(table_q, 2, index.on_queries, q, k, by_key=True)
        values = _sums(table_v, 1, index.on_keys, q, k)
        chunks = _chunks(q, k, trains=True)
        buffer = q.new_empty(chunks[0].stop, q.shape[1], k.shape[1])
        pieces = _split(chunks, q, k, v, weights, grad, grad_q, grad_k, grad_v)
        for heads, q_, k_, v_, p, g, gq, gk, gv in zip(chunks, *pieces, strict=True):
            gp = buffer[:heads.stop - heads.start]
            torch.bmm(p.transpose(1, 2), g, out=gv)
            if table_v is not None and grad_table_v is not None and values is not None:
                add_table_grad(grad_table_v, heads, values(p), g)
                _read(times_table(g, table_v.transpose(1, 2), heads), index.on_keys, gp, False)
            gp.baddbmm_(g, v_.transpose(1, 2), beta=float(table_v is not None))
            torch._softmax_backward_data(gp, p, -1, p.dtype, grad_input=gp)
            # With beta=0 what is in the output does not count.
            gq.baddbmm_(gp, k_, beta=0, alpha=scale)
            gk.baddbmm_(gp.transpose(1, 2), q_, beta=0, alpha=scale)
            for x, gx, table, total, add_up in ((q_, gq, table_k, grad_table_k, by_query),
                                                (k_, gk, table_q, grad_table_q, by_key)):
                if table is not None and total is not None and add_up is not None:
                    sums = add_up(gp)
                    add_times_table(gx, sums, table.transpose(1, 2), heads)
                    add_table_grad(total, heads, sums, x)
        return (grad_q, grad_k, grad_v, _turned(grad_table_k), _turned(grad_table_q), grad_table_v,
                None, None, None, None)


def _sums(table: Tensor | None, dim: int, index: tuple[Tensor, ...], q: Tensor, k: Tensor,
          by_key: bool = False) -> _Sums | None:
    """Sums for the buckets in dimension ``dim`` of a table."""
    if table is None:
        return None
    return _Sums(index, q.shape[1], k.shape[1], table.shape[dim], by_key)


def _turned(table: Tensor | None) -> Tensor | None:
    return None if table is None else table.transpose(1, 2)


def _chunks(q: Tensor, k: Tensor, trains: bool) -> list[slice]:
    """Heads worked on at a time."""
    elements = TRAINING_CHUNK_ELEMENTS if trains else CHUNK_ELEMENTS
    step = max(1, elements // (q.shape[1] * k.shape[1]))
    return [slice(first, min(first + step, q.shape[0])) for first in range(0, q.shape[0], step)]


def _split(chunks: list[slice], *tensors: Tensor) -> list[tuple[Tensor, ...]]:
    """Each tensor's pieces."""
    return [tensor.split(chunks[0].stop)  # type: ignore[no-untyped-call]
            for tensor in tensors]


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
