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


_ACTIVATE = {'gelu': torch.ops.aten.gelu_, 'relu': torch.ops.aten.relu_}
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
            writing and reading two hidden layers on a CPU. 'kept', for relu, keeps the hidden layer
            and goes through the backward pass by rows. 'auto' takes 'chunked' for large float32 or
            float64 inputs on a CPU, outside autocast and torch.compile, and 'kept' for smaller
            ones with relu.
        activation: 'gelu' or 'relu'.

    Returns:
        (..., C').

    Raises:
        ValueError: for an unknown form or activation.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f'activation={activation!r} must be one of {ACTIVATIONS}')
    if form == 'auto':
        form = _choose_form(x, weight1, activation)
    if form == 'stored':
        hidden = F.linear(x, weight1, bias1)
        hidden = F.gelu(hidden) if activation == 'gelu' else F.relu(hidden)
        return F.linear(hidden, weight2, bias2)
    if form not in ('chunked', 'kept') or (form == 'kept' and activation != 'relu'):
        raise ValueError(f"form={form!r} must be 'auto', 'stored', 'chunked' or, with "
                         f"activation='relu', 'kept'")
    out: Tensor = _ChunkedMLP.apply(x.reshape(-1, x.shape[-1]), weight1,  # type: ignore[no-untyped-call]
                                   bias1, weight2, bias2, activation, form == 'kept')
    return out.reshape(*x.shape[:-1], weight2.shape[0])


def _choose_form(x: Tensor, weight1: Tensor, activation: str) -> str:
    if (torch.compiler.is_compiling() or x.device.type != 'cpu'
            or torch.is_autocast_enabled('cpu') or x.dtype != weight1.dtype
            or x.dtype not in (torch.float32, torch.float64)):
        return 'stored'
    hidden_bytes = x.numel() // x.shape[-1] * weight1.shape[0] * x.element_size()
    if hidden_bytes >= MIN_HIDDEN_BYTES:
        return 'chunked'
    return 'kept' if activation == 'relu' and torch.is_grad_enabled() else 'stored'


def _chunk_rows(rows: int) -> int:
    """About CHUNK_ROWS, so that no chunk is much smaller than the others."""
    return max(1, -(-rows // max(1, round(rows / CHUNK_ROWS))))


class _ChunkedMLP(torch.autograd.Function):
    """mlp() by rows; saves its input and, where it keeps that, the hidden layer behind relu."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor,
                bias2: Tensor, activation: str, keep: bool) -> Tensor:
        out = x.new_empty(x.shape[0], weight2.shape[0])
        step = _chunk_rows(x.shape[0])
        buffer = x.new_empty(x.shape[0] if keep else min(step, x.shape[0]), weight1.shape[0])
        for start in range(0, x.shape[0], step):
            rows = x[start:start + step]
            first = start if keep else 0
            hidden = buffer[first:first + rows.shape[0]]
            torch.addmm(bias1, rows, weight1.t(), out=hidden)
            _ACTIVATE[activation](hidden)
            torch.addmm(bias2, hidden, weight2.t(), out=out[start:start + step])
        ctx.save_for_backward(x, weight1, bias1, weight2, buffer if keep else None)
        ctx.activation = activation
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight1, bias1, weight2, kept = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        need_x, need_1, _, need_2, *_ = ctx.needs_input_grad
        grad_x = torch.empty_like(x) if need_x else None
        grad_w1, grad_b1, grad_w2 = map(torch.zeros_like, (weight1, bias1, weight2))
        step = _chunk_rows(x.shape[0])
        rows_max = min(step, x.shape[0])
        # relu's derivative needs its output alone, and takes the gradient's place
        count = {'gelu': 3, 'relu': 1 + (kept is None)}[ctx.activation]
        buffers = [x.new_empty(rows_max, weight1.shape[0]) for _ in range(count)]
        for start in range(0, x.shape[0], step):
            rows = x[start:start + step]
            grad_rows = grad_out[start:start + step]
            grad_act, *others = (buffer[:rows.shape[0]] for buffer in buffers)
            if kept is not None:
                pre = act = kept[start:start + step]
            else:
                pre = act = torch.addmm(bias1, rows, weight1.t(), out=others[0])
            if ctx.activation == 'gelu':
                act = others[1]
                torch.ops.aten.gelu.out(pre, out=act)
            elif kept is None:
                act.relu_()
            if need_2:
                grad_w2.addmm_(grad_rows.t(), act)
            torch.mm(grad_rows, weight2, out=grad_act)
            # gelu: the activation is no longer needed
            grad_pre = act if ctx.activation == 'gelu' else grad_act
            _GRADIENT_OUT[ctx.activation](grad_act, pre, grad_pre)
            if need_1:
                grad_w1.addmm_(grad_pre.t(), rows)
                grad_b1 += grad_pre.sum(0)
            if grad_x is not None:
                torch.mm(grad_pre, weight1, out=grad_x[start:start + step])
        grad_b2 = grad_out.sum(0)
        return grad_x, grad_w1, grad_b1, grad_w2, grad_b2, None, None
