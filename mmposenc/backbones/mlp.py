"""A two-layer perceptron over tokens that does not have to store its hidden layer."""
from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..attention.fast.dropout import DropoutFactors
from ..functional.linear import linear, transposed_product
from ..functional.tracing import autocast_dtype, is_compiling, is_transforming

#: The number of rows in a chunk, and its largest number of hidden values. With half as many, a
#: training of these layers of Swin-T, PVT and DETR takes up to 1.13 times as long, in the calls of
#: operators. Twice as many gain less for PVT and Swin's first stage, and take more memory: with
#: 2 ** 19, 2 ** 20 and 2 ** 21 numbers an encoder layer of DETR takes 0.16, 0.20 and 0.26 of that
#: of mmdet's (benchmarks/detr.py --rows 25x42 --case irpe-k --dropout 0.1; Zen 4).
CHUNK_ROWS = 2048
CHUNK_NUMBERS = 2 ** 20
#: Bytes of a hidden layer from which it is not stored: the C library gives such memory back to the
#: system and gets it again, page by page, at each call (benchmarks/models.py, Swin-T: in bfloat16
#: at 800x1344, stage 1 with 52 MB gets faster by chunks, stage 2 with half as many slower).
MIN_HIDDEN_BYTES = 2 ** 25
#: Numbers of a hidden layer with dropout from which chunks are not slower and take a third less
#: memory (benchmarks/detr.py --rows 25x42 --dropout 0.1).
MIN_DROPPED = 2 ** 21
#: Data types that the chunked implementation supports.
CHUNKED_DTYPES = (torch.float32, torch.float64, torch.bfloat16)
ACTIVATIONS = ('gelu', 'relu', 'gelu_tanh', 'quick_gelu', 'swiglu')
#: The factor of CLIP's approximation of GELU, x * sigmoid(1.702 x).
QUICK = 1.702


def activate(hidden: Tensor, activation: str) -> Tensor:
    """The activation between the two layers.

    Args:
        hidden: (..., hidden); for 'swiglu' (..., 2 * hidden), gates first.
        activation: 'gelu', 'relu', 'gelu_tanh' (SigLIP's approximation of GELU), 'quick_gelu'
            (CLIP's) or 'swiglu' (silu(gate) * value, Shazeer 2020, Eq. 5).

    Returns:
        (..., hidden).
    """
    if activation == 'gelu':
        return F.gelu(hidden)
    if activation == 'gelu_tanh':
        return F.gelu(hidden, approximate='tanh')
    if activation == 'quick_gelu':
        return hidden * torch.sigmoid(QUICK * hidden)
    if activation == 'swiglu':
        gate, value = hidden.chunk(2, -1)
        return F.silu(gate) * value
    return F.relu(hidden)


def mlp(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor,
        implementation: str = 'auto', activation: str = 'gelu', dropout_p: float = 0.0) -> Tensor:
    """activate(x W1^T + b1) W2^T + b2.

    Args:
        x: (..., C).
        weight1, bias1: (hidden, C), (hidden,); twice as many rows for 'swiglu', see
            :func:`activate`.
        weight2, bias2: (C', hidden), (C',).
        implementation: 'stored': the hidden layer is stored for the backward pass. 'chunked': it is
            computed for some rows at a time, and again in the backward pass; on a CPU the
            additional matrix product takes less time than writing and reading two hidden layers.
            'auto': 'chunked' for large inputs on a CPU outside of torch.compile, else 'stored'.
            Under autocast rows are computed in its dtype, and gradients of weights are summed in
            float32.
        activation: one of :data:`ACTIVATIONS`.
        dropout_p: rate of dropout after relu, drawn by rows (:class:`~.dropout.DropoutFactors`)
            without storing a mask.

    Returns:
        (..., C').

    Raises:
        ValueError: an unknown implementation or activation, or dropout with another activation than
            relu.
    """
    if dropout_p and activation != 'relu':
        raise ValueError(f"dropout_p={dropout_p} with activation={activation!r}: dropout is "
                         f"supported only with 'relu'; use dropout_p=0")
    if activation not in ACTIVATIONS:
        raise ValueError(f'activation={activation!r} must be one of {ACTIVATIONS}')
    dtype = _compute_dtype(x)
    if implementation == 'auto':
        implementation = _choose_implementation(x, weight1, dtype, dropout_p)
    if implementation == 'stored':
        hidden = activate(linear(x, weight1, bias1), activation)
        hidden = F.dropout(hidden, dropout_p) if dropout_p else hidden
        return linear(hidden, weight2, bias2)
    if implementation != 'chunked':
        raise ValueError(f"implementation={implementation!r} must be 'auto', 'stored' or 'chunked'")
    out: Tensor = _ChunkedMLP.apply(
        x.reshape(-1, x.shape[-1]).to(dtype), weight1, bias1, weight2, bias2, activation,
        DropoutFactors(dropout_p, x.device) if dropout_p else None)
    return out.reshape(*x.shape[:-1], weight2.shape[0])


def _choose_implementation(x: Tensor, weight1: Tensor, dtype: torch.dtype, dropout_p: float
                           ) -> str:
    if is_compiling() or is_transforming():
        return 'stored'
    if x.device.type != 'cpu' or dtype not in CHUNKED_DTYPES:
        return 'stored'
    if dtype == x.dtype != weight1.dtype and autocast_dtype('cpu') is None:
        return 'stored'  # Storing raises torch's own error where dtypes differ.
    hidden = x.numel() // x.shape[-1] * weight1.shape[0]
    least = MIN_DROPPED if dropout_p else MIN_HIDDEN_BYTES // dtype.itemsize
    return 'chunked' if hidden >= least else 'stored'


def _compute_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which autocast computes."""
    casts = x.dtype != torch.float64 and x.device.type == 'cpu'
    return autocast_dtype('cpu') or x.dtype if casts else x.dtype


def _chunk_rows(rows: int, hidden: int) -> int:
    """The number of rows in a chunk: about CHUNK_ROWS, chosen so that no chunk is much smaller than
    the others."""
    most = max(1, min(CHUNK_ROWS, CHUNK_NUMBERS // hidden))
    return max(1, -(-rows // max(1, round(rows / most))))


def _hidden_layer(x: Tensor, weight: Tensor, bias: Tensor, activation: str,
                  drawn: DropoutFactors | None) -> Tensor:
    """The hidden layer of some rows, with dropout by the next factors of ``drawn``."""
    hidden = activate(linear(x, weight, bias), activation)
    if drawn is None:
        return hidden
    return hidden * drawn.draw(torch.empty_like(hidden)).mul_(drawn.scale)


class _ChunkedMLP(torch.autograd.Function):
    """Computes mlp() a chunk of rows at a time, in the dtype of x. It saves its input. Gradients of
    weights are summed in at least float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor,
                bias2: Tensor, activation: str, dropout: DropoutFactors | None) -> Tensor:
        ctx.activation, ctx.dropout = activation, dropout
        ctx.save_for_backward(x, weight1, bias1, weight2, bias2)
        drawn = None if dropout is None else dropout.start()
        weight1, bias1, weight2, bias2 = (w.to(x.dtype) for w in (weight1, bias1, weight2, bias2))
        out = x.new_empty(x.shape[0], weight2.shape[0])
        step = _chunk_rows(x.shape[0], weight1.shape[0])
        for rows, part in zip(x.split(step), out.split(step), strict=True):
            hidden = _hidden_layer(rows, weight1, bias1, activation, drawn)
            part.copy_(linear(hidden, weight2, bias2))
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # A second derivative was asked for (create_graph=True).
            return _differentiable_gradients(ctx, grad_out)
        x, weight1, bias1, weight2, _ = ctx.saved_tensors
        need_x, need_weight1, need_bias1, need_weight2, *_ = ctx.needs_input_grad
        drawn = None if ctx.dropout is None else ctx.dropout.start()
        total = torch.promote_types(x.dtype, torch.float32)  # The dtype in which chunks are summed.
        first, bias = (each.detach().to(total).requires_grad_(need) for each, need in (
            (weight1, need_weight1), (bias1, need_bias1)))
        second = weight2.to(x.dtype).t()
        grad_out, grad_x = grad_out.contiguous(), torch.empty_like(x)
        grad_weight2 = torch.zeros_like(weight2, dtype=total)
        step = _chunk_rows(x.shape[0], weight1.shape[0])
        for rows, grad_rows, grad_part in zip(
                x.split(step), grad_out.split(step), grad_x.split(step), strict=True):
            rows = rows.detach().requires_grad_(need_x)
            with torch.enable_grad():
                hidden = _hidden_layer(rows, first.to(x.dtype), bias.to(x.dtype), ctx.activation,
                                       drawn)
            if need_weight2:
                grad_weight2 += transposed_product(grad_rows, hidden.detach())
            if hidden.requires_grad:
                hidden.backward(linear(grad_rows, second))
            if need_x:
                grad_part.copy_(rows.grad)
        grads = (grad_x if need_x else None, first.grad, bias.grad, grad_weight2,
                 grad_out.sum(0, dtype=total))
        return (*(None if grad is None else grad.to(each.dtype)
                  for grad, each in zip(grads, ctx.saved_tensors, strict=True)), None, None)


def _differentiable_gradients(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of :class:`_ChunkedMLP`, computed by autograd with a stored hidden layer."""
    # Views cut the graph here: if a weight was itself computed from x, the gradient of x must not
    # include the way through that weight.
    views = [tensor.view_as(tensor) for tensor in ctx.saved_tensors]
    x, weight1, bias1, weight2, bias2 = (view.to(views[0].dtype) for view in views)
    drawn = None if ctx.dropout is None else ctx.dropout.start()
    hidden = torch.cat([_hidden_layer(rows, weight1, bias1, ctx.activation, drawn)
                        for rows in x.split(_chunk_rows(x.shape[0], weight1.shape[0]))])
    needed = [view for view, need in zip(views, ctx.needs_input_grad, strict=False) if need]
    grads = iter(torch.autograd.grad(linear(hidden, weight2, bias2), needed, grad_out,
                                     create_graph=True))
    return tuple(next(grads) if need else None for need in ctx.needs_input_grad)
