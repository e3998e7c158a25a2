"""What single kernels of a GPU compute: fused attention, FlexAttention, softmax of halves."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FunctionType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

aten = torch.ops.aten


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator on the tensors inside, where CUDA's takes what that of the CPU does not."""
    if func is aten._softmax.default and args[2]:
        return func(args[0].float(), args[1], False)  # half to float
    if func is aten._softmax_backward_data.default and args[3] != args[0].dtype:
        return func(*args[:3], args[0].dtype).to(args[3])
    out = func(*args, **kwargs)
    if func in (aten._conj.default, aten._neg_view.default):  # wrappers carry no such bits
        return out.resolve_conj().resolve_neg()
    return out


def patches(gpu: Any) -> Iterator[AbstractContextManager[Any]]:
    """Of functions that would call a kernel which a CPU build has not."""
    from mmposenc.attention.fast import flex
    plain, generator = nn.functional.scaled_dot_product_attention, torch.Generator

    def sdpa(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
             dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
             **kwargs: Any) -> Tensor:
        if q.device.type != 'cuda' or not has_fast_kernel(q, k, v) or dropout_p or is_causal:
            return plain(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, **kwargs)

        def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return plain(q, k, v, attn_mask, scale=scale)
        if attn_mask is not None:
            fill = -attn_mask.shape[-1] % 16  # the kernel reads masks of whole blocks
            attn_mask = nn.functional.pad(attn_mask, (0, fill))[..., :attn_mask.shape[-1]]
            # Its gradient is of all pairs before it is summed to the mask's shape.
            attn_mask = attn_mask.expand(*q.shape[:3], k.shape[2])
        return one_kernel(gpu, formula, (q, k, v), [] if attn_mask is None else [attn_mask])

    def compiled(q: Tensor, k: Tensor, v: Tensor, *, score_mod: Callable[..., Tensor],
                 block_mask: Any, scale: float, kernel_options: Any) -> Tensor:
        assert q.dtype == k.dtype == v.dtype, 'FlexAttention takes one dtype'
        assert block_mask is None or block_mask.kv_indices.device.type == 'cuda'

        def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            b, h, i, j = (torch.arange(n, device=q.device).view([n if at == dim else 1
                                                                 for at in range(4)])
                          for dim, n in enumerate((*q.shape[:3], k.shape[2])))
            with torch.autocast('cuda', enabled=False):  # the kernel's sums are in float32
                scores = q.float() @ k.float().transpose(-2, -1) * scale
                scores = score_mod(scores, b, h, i, j)
                if block_mask is not None:
                    keep = block_mask.mask_mod(b, h, i, j)
                    scores = torch.where(keep, scores, float('-inf'))
                return (scores.float().softmax(-1) @ v.float()).to(q.dtype)
        return one_kernel(gpu, formula, (q, k, v), list(captured(score_mod)))

    yield mock.patch.object(nn.functional, 'scaled_dot_product_attention', sdpa)
    yield mock.patch.object(flex, 'compiled', lambda key: compiled)
    yield mock.patch.object(flex, 'has_triton', lambda: True)
    yield mock.patch.object(torch, 'Generator', lambda device='cpu': generator())


def has_fast_kernel(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether torch 2.13 takes one that builds no (L, L) tensor: the memory-efficient one at the
    least (rules of sdp_utils.cpp)."""
    step = 8 if q.dtype in (torch.float16, torch.bfloat16) else 4
    return (q.shape[-1] % step == v.shape[-1] % step == 0 and q.dtype != torch.float64
            and all(x.stride(-1) == 1 for x in (q, k, v)))


def captured(function: Any) -> Iterator[Tensor]:
    """Tensors that a score_mod reads, and gradients reach."""
    for cell in function.__closure__ or ():
        held = cell.cell_contents
        for each in held if isinstance(held, list | tuple) else [held]:
            if isinstance(each, FunctionType):
                yield from captured(each)
            elif isinstance(each, Tensor) and each.requires_grad:
                yield each


def one_kernel(gpu: Any, formula: Callable[..., Tensor], qkv: tuple[Tensor, ...],
               others: list[Tensor]) -> Tensor:
    """A formula as one kernel forward and one backward: it keeps its inputs, its output and a
    number for each query, and what the formula makes on the way takes no memory."""
    out: Tensor = _Kernel.apply(gpu, formula, len(qkv), *qkv, *others)
    return out


class _Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gpu: Any, formula: Callable[..., Tensor], count: int, *tensors: Tensor
                ) -> Tensor:
        q, _, v = tensors[:3]
        with gpu.memory.uncounted():
            made = formula(*tensors[:count]) if gpu.values else None
        out = q.new_empty(*q.shape[:3], v.shape[3])
        if made is not None:
            out.copy_(made)
        ctx.save_for_backward(*tensors, out, q.new_empty(q.shape[:3], dtype=torch.float32))
        ctx.gpu, ctx.formula, ctx.count, ctx.others = gpu, formula, count, tensors[count:]
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors[:-2]
        needs = ctx.needs_input_grad[3:]
        grads = [torch.empty_like(x) if need else None
                 for x, need in zip(tensors, needs, strict=True)]
        if ctx.gpu.values:
            with ctx.gpu.memory.uncounted(), torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in tensors[:ctx.count]]
                wanted = [*leaves, *ctx.others]
                found = torch.autograd.grad(ctx.formula(*leaves), [
                    x for x in wanted if x.requires_grad], grad, allow_unused=True)
            by_id = dict(zip([id(x) for x in wanted if x.requires_grad], found, strict=True))
            for each, x in zip(grads, wanted, strict=True):
                if each is not None:
                    value = by_id[id(x)]
                    each.copy_(value) if value is not None else each.zero_()
        return (None, None, None, *grads)
