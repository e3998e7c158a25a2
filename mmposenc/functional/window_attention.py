"""Attention inside windows with one bias for all of them."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Scores worked on at a time in training on a CPU, in numbers: they stay in the cache.
_TRAINING_CHUNK = 2 ** 17
#: Up to this many weights (8 MiB of float32), training keeps them; computing more of them again
#: costs little, and they would be most of the memory.
_KEEP = 2 ** 21


def window_attention(joint: Tensor, bias: Tensor | None, regions: Tensor | None, scale: float
                     ) -> Tensor:
    """softmax(q k^T * scale + bias) v in every window, between tokens of one region.

    Args:
        joint: queries, keys and values (B * windows, L, 3, heads, head_dims), as one projection
            gives them, windows of an image one after the other. (Taken apart and put together by
            autograd, their gradients would be copied once more.)
        bias: (heads, L, L), the same for all windows, or None.
        regions: (1 or B, windows, L) from window_regions, or None.

    Returns:
        (B * windows, L, heads, head_dims).

    On a CPU inference takes the windows of one mask together, and training a few at a time: no
    mask of all windows, and in training at most one buffer (the weights) instead of four.
    Elsewhere, and while compiling, all at once on ``F.scaled_dot_product_attention``.
    """
    flat = None if regions is None else regions.flatten(0, 1)
    trains = torch.is_grad_enabled() and (
        joint.requires_grad or bias is not None and bias.requires_grad)
    if trains and joint.device.type == 'cpu' and not torch.compiler.is_compiling():
        out: Tensor = _WindowAttention.apply(  # type: ignore[no-untyped-call]
            joint, bias, flat, scale)
        return out
    q, k, v = joint.permute(2, 0, 3, 1, 4).unbind(0)
    if q.device.type != 'cpu' or torch.compiler.is_compiling():
        mask = None if bias is None else bias[None].to(q.dtype)
        if flat is not None:
            apart = _apart(flat)
            apart = apart.repeat(q.shape[0] // apart.shape[0], 1, 1)[:, None]
            mask = ~apart if mask is None else mask.masked_fill(apart, float('-inf'))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return out.transpose(1, 2)
    return _infer(q, k, v, bias, flat, scale).transpose(1, 2)


def _infer(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, regions: Tensor | None,
           scale: float) -> Tensor:
    """Runs of windows on SDPA, those of a run with one mask: shifted windows know few of them."""
    bias = None if bias is None else bias.to(q.dtype)
    if regions is None:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if bias is None else bias[None], scale=scale)
    out = _empty_output(q)
    kinds, apart = _kinds(regions)
    masks = [~each[None, None] if bias is None else bias[None].masked_fill(each, float('-inf'))
             for each in apart]
    whole = None if bias is None else bias[None]
    for part, kind in _runs(kinds, q.shape[0]):
        out[part] = F.scaled_dot_product_attention(
            q[part], k[part], v[part], attn_mask=whole if kind < 0 else masks[kind], scale=scale)
    return out


def _kinds(regions: Tensor) -> tuple[list[int], Tensor]:
    """For each window of regions (windows, L) the pairs that must not meet, by number, -1 where all
    may; and the pairs (kinds, L, L)."""
    split = (regions != regions[:, :1]).any(1)
    distinct, which = torch.unique(regions[split], dim=0, return_inverse=True)
    kinds = torch.full_like(regions[:, 0], -1)
    kinds[split] = which
    return kinds.tolist(), _apart(distinct)


def _runs(kinds: list[int], windows: int) -> list[tuple[slice, int]]:
    """Windows of one kind that a slice reaches: each in all images, or neighbours, whichever takes
    fewer slices. Images share the kinds."""
    starts = [window for window in range(windows) if window == 0 or
              kinds[window % len(kinds)] != kinds[(window - 1) % len(kinds)]]
    if len(kinds) < len(starts):
        return [(slice(first, None, len(kinds)), kind) for first, kind in enumerate(kinds)]
    return [(slice(first, stop), kinds[first % len(kinds)])
            for first, stop in zip(starts, [*starts[1:], windows], strict=True)]


class _WindowAttention(torch.autograd.Function):
    """The same with a gradient of the bias, with which SDPA on a CPU is slower than explicit
    attention. The weights are kept or computed again; all else lives in buffers of a few windows.
    """

    @staticmethod
    def forward(ctx: Any, joint: Tensor, bias: Tensor | None, regions: Tensor | None,
                scale: float) -> Tensor:
        q, k, v = joint.permute(2, 0, 3, 1, 4)
        windows, heads, length, dims = q.shape
        kept = None
        if windows * heads * length ** 2 > _KEEP:
            # Detached: a mask that requires a gradient sends SDPA to its slow path even here.
            out = _infer(q, k, v, None if bias is None else bias.detach(), regions, scale)
        else:
            kept, out = q.new_empty(windows * heads, length, length), _empty_output(q)
            for start, stop, apart in _chunks(q, regions):
                part = slice(start, stop)
                weights = kept[start * heads:stop * heads]
                _weights(q[part], k[part], bias, apart, scale, weights)
                out[part] = torch.bmm(weights, _flat(v[part])).view(-1, heads, length, dims)
        ctx.save_for_backward(joint, bias, regions, kept)
        ctx.scale = scale
        return out.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        joint, bias, regions, kept = ctx.saved_tensors
        q, k, v = joint.permute(2, 0, 3, 1, 4)
        grad_joint = torch.empty_like(joint)
        grad_q, grad_k, grad_v = grad_joint.permute(2, 0, 3, 1, 4)
        grad = grad.transpose(1, 2)
        _, heads, length, dims = q.shape
        grad_bias = None
        if ctx.needs_input_grad[1]:
            grad_bias = q.new_zeros(heads, length, length, dtype=torch.promote_types(
                q.dtype, torch.float32))
        buffer = None
        for start, stop, apart in _chunks(q, regions if kept is None else None):
            part, shape = slice(start, stop), (-1, heads, length, dims)
            if kept is not None:
                p = kept[start * heads:stop * heads]
            else:
                if buffer is None:
                    buffer = q.new_empty((stop - start) * heads, length, length)
                p = _weights(q[part], k[part], bias, apart, ctx.scale,
                             buffer[:(stop - start) * heads])
            g = _flat(grad[part])
            grad_v[part] = torch.bmm(p.transpose(1, 2), g).view(shape)
            ds = torch.bmm(g, _flat(v[part]).transpose(1, 2))
            del g
            torch._softmax_backward_data(ds, p, -1, p.dtype, grad_input=ds)
            if grad_bias is not None:
                grad_bias += ds.view(-1, heads, length, length).sum(0)
            grad_q[part] = _scaled(ds, _flat(k[part]), ctx.scale).view(shape)
            grad_k[part] = _scaled(ds.transpose(1, 2), _flat(q[part]), ctx.scale).view(shape)
        if grad_bias is not None:
            grad_bias = grad_bias.to(bias.dtype)
        return grad_joint, grad_bias, None, None


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, apart: Tensor | None, scale: float,
             out: Tensor) -> Tensor:
    """Attention weights of a run of windows, into ``out`` (windows * heads, L, L)."""
    _scaled(_flat(q), _flat(k).transpose(1, 2), scale, out)
    by_window = out.view(q.shape[0], -1, *out.shape[1:])
    if bias is not None:
        by_window += bias
    if apart is not None:
        by_window.masked_fill_(apart[:, None], float('-inf'))
    return torch.softmax(out, -1, out=out)


def _scaled(a: Tensor, b: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """a b * scale."""
    out = a.new_empty(*a.shape[:2], b.shape[2]) if out is None else out
    # With beta=0 what is in the output does not count.
    return torch.baddbmm(out, a, b, beta=0, alpha=scale, out=out)


def _chunks(q: Tensor, regions: Tensor | None) -> list[tuple[int, int, Tensor | None]]:
    """Runs of windows (start, stop) and the pairs (windows, L, L) of each that must not meet; None
    where all may."""
    windows, heads, length, _ = q.shape
    step = max(1, _TRAINING_CHUNK // (heads * length * length))
    split = [] if regions is None else (regions != regions[:, :1]).any(1).tolist()
    chunks: list[tuple[int, int, Tensor | None]] = []
    for start in range(0, windows, step):
        stop, apart = min(start + step, windows), None
        if regions is not None:
            own = [window % len(split) for window in range(start, stop)]  # images share regions
            if any(split[window] for window in own):
                apart = _apart(regions[own])
        chunks.append((start, stop, apart))
    return chunks


def _apart(regions: Tensor) -> Tensor:
    """(windows, L, L) bool: not of one region."""
    return regions[:, :, None] != regions[:, None, :]


def _flat(x: Tensor) -> Tensor:
    return x.reshape(-1, *x.shape[2:])


def _empty_output(q: Tensor) -> Tensor:
    windows, heads, length, dims = q.shape
    return q.new_empty(windows, length, heads, dims).transpose(1, 2)
