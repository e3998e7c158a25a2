"""Linear layers on a CPU by the faster of the two libraries that PyTorch holds.

PyTorch computes float32 products with MKL, which uses AVX-512 only on Intel's processors. oneDNN,
which PyTorch has for convolutions, bfloat16 and compiled models, uses it on all: on an AMD EPYC
of the Zen 5 generation it takes half of the time, and on Zen 4 a tenth less for large linear layers
and more for all else. bfloat16 is oneDNN's in PyTorch too, which writes the bias before
the product and reads it again; here the product adds it.
"""
from __future__ import annotations

import functools
import re
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .second_order import AutogradContext
from .tracing import are_plain, autocast_dtype, is_compiling, is_transforming

#: The number of multiply-adds from which a call of oneDNN is worth its cost (measured with products
#: 64x128x128 and 197x64x64).
MIN_PRODUCT = 2 ** 20
#: AMD's number of the family of processors that begins with Zen 5.
ZEN_5 = 26


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear``, faster in float32 on a processor with AVX-512 that is not Intel's, and in
    bfloat16 with a bias on every processor that has it.

    Args:
        x: (..., C).
        weight: (C', C).
        bias: (C',) or None.

    Returns:
        (..., C'), equal to ``F.linear`` to rounding; so are gradients of every order.
    """
    if not _takes_onednn(x, weight, bias):
        return F.linear(x, weight, bias)
    if bias is not None and autocast_dtype('cpu') is not None:
        x, weight, bias = (each.to(torch.bfloat16) for each in (x, weight, bias))
    if torch.is_grad_enabled():
        return _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return onednn_product(x, weight, bias)


def project(layer: nn.Module, x: Tensor, channels: slice | None = None) -> Tensor:
    """``layer(x)``, or some of its channels. A linear layer that is only its formula
    (:func:`~.tracing.are_plain`) is computed by :func:`linear`, and only these channels of it.

    Args:
        layer: a linear layer, whose bias may be called ``trained_bias``, or any other.
        x: (..., in_features).
        channels: those of the output (..., number of channels); None: all.
    """
    if not isinstance(layer, nn.Linear) or not are_plain(layer):
        out: Tensor = layer(x)
        return out if channels is None else out[..., channels]
    weight, bias = layer.weight, getattr(layer, 'trained_bias', layer.bias)
    if channels is None:
        return linear(x, weight, bias)
    return linear(x, weight[channels], None if bias is None else bias[channels])


def transposed_product(a: Tensor, b: Tensor) -> Tensor:
    """a^T b for (rows, n) and (rows, k), the gradient of a weight, by the faster library."""
    if a.shape[1] > b.shape[1]:
        return transposed_product(b, a).t()
    # oneDNN copies a first operand that is transposed, and takes a second one as it is.
    return linear(a.t(), b.t()) if onednn_halves_time() else a.t() @ b


def _takes_onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether :func:`onednn_product` can compute x W^T + bias, and is faster. Not while a model is
    compiled, traced, transformed or watched."""
    # Modes of dispatch, as those that count operations, know torch's own operators alone.
    if is_compiling() or is_transforming() or torch.jit.is_tracing() or (
            torch._C._len_torch_dispatch_stack()):
        return False
    given = [x, weight] if bias is None else [x, weight, bias]
    if any(each.device.type != 'cpu' for each in given) or not (
            has_contiguous_side(x) and has_contiguous_side(weight)):
        return False
    if x.numel() * weight.shape[0] < MIN_PRODUCT or not torch.backends.mkldnn.enabled:
        return False
    if any(type(each) not in (Tensor, torch.nn.Parameter) for each in given[1:]):
        return False
    dtypes, cast = {each.dtype for each in given}, autocast_dtype('cpu')
    if cast is None and dtypes == {torch.float32}:
        return onednn_is_faster()
    casts = cast == torch.bfloat16 and dtypes <= {torch.float32, torch.bfloat16}
    return (bias is not None and onednn_has_bfloat16()
            and (casts or (cast is None and dtypes == {torch.bfloat16})))


def onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + bias (..., out) from x (..., in) and the weight W (out, in), without
    gradients, by oneDNN also where MKL would be faster."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, 'none', [], '')


def has_contiguous_side(x: Tensor) -> bool:
    """Whether rows or columns are contiguous; otherwise oneDNN takes hundreds of times as long."""
    return x.is_contiguous() or (x.dim() == 2 and x.t().is_contiguous())


@functools.cache
def onednn_is_faster() -> bool:
    """Whether this is a processor with AVX-512 that MKL does not use, and a PyTorch with both
    libraries."""
    mkl, onednn = torch.backends.mkl, torch.backends.mkldnn
    if not (mkl.is_available() and onednn.is_available()
            and torch.backends.cpu.get_cpu_capability() == 'AVX512'
            and hasattr(torch.ops.mkldnn, '_linear_pointwise')):
        return False
    return _amd_family() > 0


@functools.cache
def onednn_halves_time() -> bool:
    """Whether oneDNN is so much faster that small products gain too: from Zen 5 on, which computes
    512 bits at once where Zen 4 takes two steps."""
    return onednn_is_faster() and _amd_family() >= ZEN_5


def _amd_family() -> int:
    """AMD's number of the family of this processor, as Linux tells it; 0 for all others."""
    text = _cpu_info()
    family = re.search(r'cpu family\s*: (\d+)', text)
    return int(family[1]) if family and 'AuthenticAMD' in text else 0


def _cpu_info() -> str:
    """What Linux tells of this processor; nothing on other systems."""
    info = Path('/proc/cpuinfo')
    return info.read_text(encoding='utf-8', errors='ignore') if info.exists() else ''


def has_bfloat16_units() -> bool:
    """Whether this processor has instructions that multiply bfloat16. oneDNN computes bfloat16
    without them too (:func:`onednn_has_bfloat16`), by those of float32."""
    return bool(re.search(r'\b(avx512_bf16|amx_bf16|bf16)\b', _cpu_info()))


@functools.cache
def onednn_has_bfloat16() -> bool:
    """A processor with bfloat16, and a PyTorch whose oneDNN uses it."""
    return (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, '_linear_pointwise')
            and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


class _Linear(torch.autograd.Function):
    """A linear layer by three products: the forward pass, and the gradients of x and of the weight.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return onednn_product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: tuple[Tensor, Tensor, Tensor | None],
                      output: Tensor) -> None:
        x, weight, bias = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad
        rows = grad.reshape(-1, grad.shape[-1])
        # By linear() again, so that gradients of these gradients exist.
        grad_x = linear(grad, weight.t()) if need_x else None
        grad_weight = transposed_product(rows, x.reshape(-1, x.shape[-1])) if need_weight else None
        return grad_x, grad_weight, rows.sum(0) if need_bias else None
