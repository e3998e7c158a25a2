"""Attention with an additive bias that is trained, without the slow path of SDPA.

``F.scaled_dot_product_attention`` has no fused backward for a mask that needs a gradient on a CPU.
Here a few windows (or query rows) are worked on at a time in one buffer; the product is added to
the bias by the call that computes it, and the bias' gradient is summed over the images at once.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Elements of a buffer of logits.
CHUNK_ELEMENTS = 512 * 1024
#: Up to this many (query, key) pairs a head, training keeps the weights instead of computing them
#: again.
KEEP_PAIRS = 600 * 600


class _BiasedAttention(torch.autograd.Function):
    """softmax(q k^T + bias) v; q (M, P, Lq, D), k, v (M, P, Lk, D), bias (P, Lq, Lk)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, keep: bool) -> Tensor:
        out = torch.empty_like(q)
        kept = None
        if keep:
            kept = q.new_empty(*q.shape[:2], *bias.shape[1:])
        buffer = _Buffer(q)
        for part in _parts(q.shape[0], bias):
            weights = _weights(q, k, bias, part, buffer, kept)
            torch.bmm(weights.flatten(0, 1), _flat(v, part, rows=False), out=_flat(out, part))
        ctx.save_for_backward(q, k, v, bias, kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, kept = ctx.saved_tensors
        grad = grad.contiguous()
        grad_q, grad_k, grad_v = (torch.empty_like(x) for x in (q, k, v))
        grad_bias = torch.zeros_like(bias)
        buffer, other = _Buffer(q), _Buffer(q)
        for part in _parts(q.shape[0], bias):
            images, which, rows = part
            if kept is None:
                weights = _weights(q, k, bias, part, buffer, None)
            else:
                weights = kept[images, which, rows]
            flat = weights.flatten(0, 1)
            g = _flat(grad, part)
            grad_logits = other.view(weights.shape)
            flat_grad = grad_logits.view(flat.shape)
            torch.bmm(g, _flat(v, part, rows=False).transpose(1, 2), out=flat_grad)
            _product(flat.transpose(1, 2), g, _flat(grad_v, part, rows=False), rows.start > 0)
            torch._softmax_backward_data(grad_logits, weights, -1, weights.dtype,
                                         grad_input=grad_logits)
            grad_bias[which, rows] += grad_logits.sum(0)
            torch.bmm(flat_grad, _flat(k, part, rows=False), out=_flat(grad_q, part))
            _product(flat_grad.transpose(1, 2), _flat(q, part), _flat(grad_k, part, rows=False),
                     rows.start > 0)
        return grad_q, grad_k, grad_v, grad_bias, None


class _Buffer:
    """One allocation that the chunks of a call share."""

    def __init__(self, like: Tensor) -> None:
        self._tensor = like.new_empty(0)

    def view(self, shape: torch.Size | tuple[int, ...]) -> Tensor:
        """The buffer in this shape."""
        size = 1
        for each in shape:
            size *= each
        if self._tensor.numel() < size:
            self._tensor = self._tensor.new_empty(size)
        return self._tensor[:size].view(shape)


_Part = tuple[slice, slice, slice]


def _parts(num_images: int, bias: Tensor) -> Iterator[_Part]:
    """Slices of images, biases and query rows, each contiguous in memory: all biases of some
    images, some biases of one image, or some query rows of one bias."""
    period, rows, keys = bias.shape
    images = CHUNK_ELEMENTS // (period * rows * keys)
    if images:
        for first in range(0, num_images, images):
            yield (slice(first, min(first + images, num_images)), slice(0, period),
                   slice(0, rows))
        return
    many = max(1, CHUNK_ELEMENTS // (rows * keys))
    step = rows if many > 1 else max(1, min(rows, CHUNK_ELEMENTS // keys))
    for image in range(num_images):
        for first in range(0, period, many):
            for top in range(0, rows, step):
                yield (slice(image, image + 1), slice(first, min(first + many, period)),
                       slice(top, min(top + step, rows)))


def _flat(x: Tensor, part: _Part, rows: bool = True) -> Tensor:
    """(matrices, L, D) of a part; a view, because x is contiguous."""
    images, which, chosen = part
    x = x[images, which, chosen] if rows else x[images, which]
    return x.view(-1, *x.shape[2:])


def _weights(q: Tensor, k: Tensor, bias: Tensor, part: _Part, buffer: _Buffer,
             kept: Tensor | None) -> Tensor:
    """Weights (images, biases, rows, Lk) of a part, in the buffer or where they are kept."""
    images, which, rows = part
    some = bias[which, rows]
    if kept is None:
        logits = buffer.view((images.stop - images.start, *some.shape))
    else:
        logits = kept[images, which, rows]
    logits.copy_(some)
    flat = logits.view(-1, *some.shape[1:])
    torch.baddbmm(flat, _flat(q, part), _flat(k, part, rows=False).transpose(1, 2), out=flat)
    return torch.softmax(logits, -1, out=logits)


def _product(a: Tensor, b: Tensor, out: Tensor, add: bool) -> None:
    """out = a b, or out += a b."""
    if add:
        out.baddbmm_(a, b)
    else:
        torch.bmm(a, b, out=out)


def biased_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """softmax(q k^T + bias) v with a gradient for the bias.

    Args:
        q: (B, heads, Lq, head_dims), scaled.
        k, v: (B, heads, Lk, head_dims).
        bias: (n, heads or 1, Lq, Lk) with n dividing B; image b takes bias b % n. May hold -inf,
            as long as every query has a key.

    Returns:
        (B, heads, Lq, head_dims).
    """
    batch, heads = q.shape[:2]
    n = bias.shape[0]
    if batch % n:
        raise ValueError(f'bias has {n} in its first dimension, which must divide the batch of '
                         f'{batch}')
    if bias.shape[1] != heads:
        bias = bias.expand(-1, heads, -1, -1)
    q, k, v = (x.reshape(batch // n, n * heads, *x.shape[2:]).contiguous() for x in (q, k, v))
    trains = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, bias))
    out: Tensor = _BiasedAttention.apply(  # type: ignore[no-untyped-call]
        q, k, v, bias.to(q.dtype).flatten(0, 1).contiguous(),
        trains and bias.shape[2] * bias.shape[3] <= KEEP_PAIRS)
    return out.view(batch, heads, *out.shape[2:])
