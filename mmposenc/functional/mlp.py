"""Two-layer perceptron over tokens that never stores its hidden layer."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: Rows of one chunk: 1024 x 512 hidden float32 values are 2 MiB, which stays in a core's cache.
CHUNK_ROWS = 1024
#: Hidden layers below this many bytes are computed at once: storing them is cheaper than redoing.
MIN_HIDDEN_BYTES = 32 * 2 ** 20
ACTIVATIONS = ('gelu', 'relu')


def _gelu_gradient(grad: Tensor, pre: Tensor, out: Tensor) -> None:
    torch.ops.aten.gelu_backward.grad_input(grad, pre, grad_input=out)


def _relu_gradient(grad: Tensor, pre: Tensor, out: Tensor) -> None:
    torch.ops.aten.threshold_backward.grad_input(grad, pre, 0, grad_input=out)


_ACTIVATE_ = {'gelu': torch.ops.aten.gelu_, 'relu': torch.ops.aten.relu_}
_GRADIENT_OUT = {'gelu': _gelu_gradient, 'relu': _relu_gradient}


def mlp(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor,
        form: str = 'auto', activation: str = 'gelu') -> Tensor:
    """gelu(x W1^T + b1) W2^T + b2, or relu() in gelu's place.

    Args:
        x: (..., C).
        weight1, bias1: (hidden, C), (hidden,).
        weight2, bias2: (C', hidden), (C',).
        form: 'stored' keeps the hidden layer for the backward pass; 'chunked' computes a few rows
            at a time and again in the backward pass: the extra matrix product costs less than
            writing and reading two hidden layers on a CPU. 'auto' takes 'chunked' for large
            float32 or float64 inputs on a CPU, outside autocast and torch.compile.
        activation: 'gelu' or 'relu'.

    Returns:
        (..., C').

    Raises:
        ValueError: for an unknown form or activation.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f'activation={activation!r} must be one of {ACTIVATIONS}')
    if form == 'auto':
        form = 'chunked' if _chunking_pays(x, weight1) else 'stored'
    if form == 'stored':
        hidden = F.linear(x, weight1, bias1)
        hidden = F.gelu(hidden) if activation == 'gelu' else hidden.relu_()
        return F.linear(hidden, weight2, bias2)
    if form != 'chunked':
        raise ValueError(f"form={form!r} must be 'auto', 'stored' or 'chunked'")
    out: Tensor = _ChunkedMLP.apply(x.reshape(-1, x.shape[-1]), weight1,  # type: ignore[no-untyped-call]
                                   bias1, weight2, bias2, activation)
    return out.reshape(*x.shape[:-1], weight2.shape[0])


def _chunking_pays(x: Tensor, weight1: Tensor) -> bool:
    if torch.compiler.is_compiling() or x.device.type != 'cpu' or torch.is_autocast_enabled('cpu'):
        return False
    hidden_bytes = x.numel() // x.shape[-1] * weight1.shape[0] * x.element_size()
    return (x.dtype in (torch.float32, torch.float64) and x.dtype == weight1.dtype
            and hidden_bytes >= MIN_HIDDEN_BYTES)


class _ChunkedMLP(torch.autograd.Function):
    """mlp() by rows; saves its input only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor,
                bias2: Tensor, activation: str) -> Tensor:
        out = x.new_empty(x.shape[0], weight2.shape[0])
        buffer = x.new_empty(min(CHUNK_ROWS, x.shape[0]), weight1.shape[0])
        for start in range(0, x.shape[0], CHUNK_ROWS):
            rows = x[start:start + CHUNK_ROWS]
            hidden = buffer[:rows.shape[0]]
            torch.addmm(bias1, rows, weight1.t(), out=hidden)
            _ACTIVATE_[activation](hidden)
            torch.addmm(bias2, hidden, weight2.t(), out=out[start:start + CHUNK_ROWS])
        ctx.save_for_backward(x, weight1, bias1, weight2)
        ctx.activation = activation
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight1, bias1, weight2 = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        need_x, need_1, _, need_2, _, _ = ctx.needs_input_grad
        grad_x = torch.empty_like(x) if need_x else None
        grad_w1, grad_b1, grad_w2 = map(torch.zeros_like, (weight1, bias1, weight2))
        rows_max = min(CHUNK_ROWS, x.shape[0])
        buffers = [x.new_empty(rows_max, weight1.shape[0]) for _ in range(3)]
        for start in range(0, x.shape[0], CHUNK_ROWS):
            rows = x[start:start + CHUNK_ROWS]
            grad_rows = grad_out[start:start + CHUNK_ROWS]
            pre, act, grad_act = (buffer[:rows.shape[0]] for buffer in buffers)
            torch.addmm(bias1, rows, weight1.t(), out=pre)
            if ctx.activation == 'relu':
                act = pre.relu_()  # whose sign is all that its derivative needs
            elif need_2:
                torch.ops.aten.gelu.out(pre, out=act)
            if need_2:
                grad_w2.addmm_(grad_rows.t(), act)
            torch.mm(grad_rows, weight2, out=grad_act)
            grad_pre = act  # the activation is no longer needed
            _GRADIENT_OUT[ctx.activation](grad_act, pre, grad_pre)
            if need_1:
                grad_w1.addmm_(grad_pre.t(), rows)
                grad_b1 += grad_pre.sum(0)
            if grad_x is not None:
                torch.mm(grad_pre, weight1, out=grad_x[start:start + CHUNK_ROWS])
        grad_b2 = grad_out.sum(0)
        return grad_x, grad_w1, grad_b1, grad_w2, grad_b2, None
