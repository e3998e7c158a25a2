"""Attention with a row term and a column term, without an (Lq, Lk) tensor."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Logits worked on at a time: 2 MiB of float32.
CHUNK_ELEMENTS = 512 * 1024
#: Up to this many (query, key) pairs a head, training keeps the weights instead of computing them
#: again.
KEEP_PAIRS = 600 * 600


def axis_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, cols: Tensor,
                   key_term: Tensor | None = None, key_padding_mask: Tensor | None = None,
                   num_prefix_tokens: int = 0, *, form: str = 'chunked') -> Tensor:
    """softmax(q k^T + row, column and key terms) v.

    Args:
        q: (B, heads, P + Lq, d), scaled; k, v: (B, heads, P + Lk, d).
        rows: (B, heads, Hq, Wq, Hk), the term of each cell's query with each row of keys.
        cols: (B, heads, Hq, Wq, Wk), that with each column of keys.
        key_term: (B or 1, heads, P + Lk), a further logit of each key.
        key_padding_mask: (B, P + Lk) bool, True = padding.
        form: 'chunked' works on a few query rows at a time in one buffer and has its own backward
            (for a CPU); 'channels' is stock SDPA, where the terms are further channels of the
            queries and one-hots of the key's row and column are further channels of the keys.

    Returns:
        (B, heads, P + Lq, d).
    """
    p = num_prefix_tokens
    terms = [F.pad(each.flatten(2, 3), (0, 0, p, 0)) for each in (rows, cols)]
    if form == 'channels':
        return _channels(q, k, v, terms, key_term, key_padding_mask, p)
    # Half precision in float32: buffers are small, and sums over the keys stay exact.
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    with torch.autocast(q.device.type, enabled=False):
        flat = [x.to(dtype).flatten(0, 1).contiguous() for x in (q, k, v, *terms)]
        if key_term is not None:
            key_term = key_term.to(dtype).expand(*k.shape[:3]).flatten(0, 1).contiguous()
        padding = None
        if key_padding_mask is not None:
            padding = key_padding_mask.repeat_interleave(q.shape[1], 0)
        out: Tensor = _AxisAttention.apply(  # type: ignore[no-untyped-call]
            *flat, key_term, padding, p)
    return out.view(q.shape).to(v.dtype)


def _channels(q: Tensor, k: Tensor, v: Tensor, terms: list[Tensor], key_term: Tensor | None,
              key_padding_mask: Tensor | None, p: int) -> Tensor:
    hk, wk, dims = terms[0].shape[-1], terms[1].shape[-1], v.shape[-1]
    cell = torch.arange(hk * wk, device=q.device)
    one_hot = torch.cat((cell[:, None] // wk == torch.arange(hk, device=q.device),
                         cell[:, None] % wk == torch.arange(wk, device=q.device)), 1).to(q.dtype)
    one_hot = F.pad(one_hot, (0, 0, p, 0)).expand(*k.shape[:2], -1, -1)
    queries, keys = [q, *(term.to(q.dtype) for term in terms)], [k, one_hot]
    if key_term is not None:
        queries.append(q.new_ones(*q.shape[:3], 1))
        keys.append(key_term[..., None].to(q.dtype).expand(*k.shape[:3], 1))
    q, k = torch.cat(queries, -1), torch.cat(keys, -1)
    # Values of the same width keep SDPA on its fast path, which wants equal head_dims.
    v = F.pad(v, (0, q.shape[-1] - dims))
    keep = None if key_padding_mask is None else ~key_padding_mask[:, None, None, :]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep, scale=1.0)[..., :dims]


class _AxisAttention(torch.autograd.Function):
    """q, k, v (N, L, d), rows (N, Lq, Hk), cols (N, Lq, Wk), key_term (N, Lk), all contiguous."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, rows: Tensor, cols: Tensor,
                key_term: Tensor | None, padding: Tensor | None, p: int) -> Tensor:
        kept = None
        if any(ctx.needs_input_grad) and q.shape[1] * k.shape[1] <= KEEP_PAIRS:
            kept = q.new_empty(q.shape[0], q.shape[1], k.shape[1])
        out = torch.empty_like(q)
        buffer = None if kept is not None else _buffer(q, k)
        for part in _parts(q, k):
            weights = _weights(q, k, rows, cols, key_term, padding, p, part,
                               _view(buffer, part, k) if kept is None else kept[part])
            torch.bmm(weights, v[part[0]], out=out[part])
        ctx.save_for_backward(q, k, v, rows, cols, key_term, padding, kept)
        ctx.p = p
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, rows, cols, key_term, padding, kept = ctx.saved_tensors
        grad, p = grad.contiguous(), ctx.p
        grad_q, grad_k, grad_v, grad_rows, grad_cols = (
            torch.empty_like(x) for x in (q, k, v, rows, cols))
        grad_key = None if key_term is None else torch.zeros_like(key_term)
        buffer, other = None if kept is not None else _buffer(q, k), _buffer(q, k)
        for part in _parts(q, k):
            heads, queries = part
            weights = kept[part] if kept is not None else _weights(
                q, k, rows, cols, key_term, padding, p, part, _view(buffer, part, k))
            logits, first = _view(other, part, k), queries.start == 0
            _product(weights.transpose(1, 2), grad[part], grad_v[heads], first)
            torch.bmm(grad[part], v[heads].transpose(1, 2), out=logits)
            torch._softmax_backward_data(logits, weights, -1, weights.dtype,
                                         grad_input=logits)
            torch.bmm(logits, k[heads], out=grad_q[part])
            _product(logits.transpose(1, 2), q[part], grad_k[heads], first)
            cells = _cells(logits, p, rows.shape[-1])
            grad_rows[part] = cells.sum(-1)
            grad_cols[part] = cells.sum(-2)
            if grad_key is not None:
                grad_key[heads] += logits.sum(1)
        return grad_q, grad_k, grad_v, grad_rows, grad_cols, grad_key, None, None


_Part = tuple[slice, slice]


def _parts(q: Tensor, k: Tensor) -> Iterator[_Part]:
    """Whole heads while several fit in a buffer, else some queries of one head."""
    number, length, _ = q.shape
    many = max(1, CHUNK_ELEMENTS // (length * k.shape[1]))
    step = length if many > 1 else max(1, min(length, CHUNK_ELEMENTS // k.shape[1]))
    for head in range(0, number, many):
        for first in range(0, length, step):
            yield slice(head, min(head + many, number)), slice(first, min(first + step, length))


def _buffer(q: Tensor, k: Tensor) -> Tensor:
    return q.new_empty(max((h.stop - h.start) * (s.stop - s.start) for h, s in _parts(q, k))
                       * k.shape[1])


def _view(buffer: Tensor | None, part: _Part, k: Tensor) -> Tensor:
    """The buffer as logits (heads, queries, Lk) of a part."""
    assert buffer is not None
    shape = part[0].stop - part[0].start, part[1].stop - part[1].start, k.shape[1]
    return buffer[:shape[0] * shape[1] * shape[2]].view(shape)


def _cells(logits: Tensor, p: int, height: int) -> Tensor:
    """(heads, queries, P + Lk) without prefix keys, as (heads, queries, Hk, Wk)."""
    return logits[..., p:].view(*logits.shape[:2], height, -1)


def _weights(q: Tensor, k: Tensor, rows: Tensor, cols: Tensor, key_term: Tensor | None,
             padding: Tensor | None, p: int, part: _Part, logits: Tensor) -> Tensor:
    """Attention weights of a part, written into ``logits``."""
    heads = part[0]
    torch.add(rows[part][..., :, None], cols[part][..., None, :],
              out=_cells(logits, p, rows.shape[-1]))
    logits[..., :p] = 0.0
    torch.baddbmm(logits, q[part], k[heads].transpose(1, 2), out=logits)
    if key_term is not None:
        logits += key_term[heads, None]
    if padding is not None:
        logits.masked_fill_(padding[heads, None], float('-inf'))
    return torch.softmax(logits, -1, out=logits)


def _product(a: Tensor, b: Tensor, out: Tensor, first: bool) -> None:
    """out = a b the first time, then out += a b."""
    if first:
        torch.bmm(a, b, out=out)
    else:
        out.baddbmm_(a, b)
