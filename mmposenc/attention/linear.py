"""Linear layers that are fast on every CPU."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.linear import linear
from ..functional.plain_layers import are_plain, mark_as_formula
from ..functional.tracing import is_exporting


@mark_as_formula
class Linear(nn.Linear):
    """``nn.Linear`` through :func:`mmposenc.functional.linear.linear`: the same parameters, outputs
    and gradients to rounding, in less time where oneDNN is the faster library."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return linear(x, self.weight, self.bias)


@mark_as_formula
class QVLinear(Linear):
    """A joint projection to queries, keys and values without a bias of keys (BEiT, EVA-02, DINOv3).

    Args:
        embed_dims: channels C.

    Parameters: ``weight`` (3 C, C), ``q_bias`` and ``v_bias`` (C,).
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__(embed_dims, 3 * embed_dims, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(embed_dims))
        self.v_bias = nn.Parameter(torch.zeros(embed_dims))

    def full_bias(self) -> Tensor:
        """(3 C,), zero for the keys."""
        return torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., 3 C)."""
        return linear(x, self.weight, self.full_bias())


def check_heads(embed_dims: int, num_heads: int) -> None:
    """Raise ValueError if ``embed_dims`` is not a multiple of ``num_heads``."""
    if num_heads < 1 or embed_dims < 1 or embed_dims % num_heads:
        raise ValueError(f'embed_dims={embed_dims} must be a positive multiple of '
                         f'num_heads={num_heads}')


def check_x_qk(x: Tensor, x_qk: Tensor | None) -> None:
    """Raise ValueError if tokens for queries and keys have another shape than those for values."""
    if x_qk is not None and x_qk.shape != x.shape:
        raise ValueError(f'x_qk has shape {tuple(x_qk.shape)}; it must be that of x, '
                         f'{tuple(x.shape)}')


def qkv_projection(embed_dims: int, qkv_bias: bool | str) -> Linear:
    """Build the joint projection to queries, keys and values; 'qv' means without a bias of the
    keys."""
    if qkv_bias not in (True, False, 'qv'):
        raise ValueError(f"qkv_bias={qkv_bias!r} must be True, False or 'qv'")
    return (QVLinear(embed_dims) if qkv_bias == 'qv' else
            Linear(embed_dims, 3 * embed_dims, bias=bool(qkv_bias)))


def linear_of_channels(layer: nn.Module, x: Tensor, channels: slice) -> Tensor:
    """Some of the output channels of a linear layer.

    Args:
        layer: a linear layer. One that is more than its formula
            (:func:`mmposenc.functional.plain_layers.are_plain`) is computed completely.
        x: (..., in_features).
        channels: the channels.

    Returns:
        (..., number of channels).
    """
    if not isinstance(layer, nn.Linear) or not are_plain(layer):
        return layer(x)[..., channels]
    bias = layer.full_bias() if isinstance(layer, QVLinear) else layer.bias
    return F.linear(x, layer.weight[channels], None if bias is None else bias[channels])


def split_heads(x: Tensor, num_heads: int, parts: int = 1) -> tuple[Tensor, ...]:
    """Split a joint tensor (B, L, parts * C) into ``parts`` tensors (B, heads, L, head_dims)."""
    joint: Tensor = x.unflatten(-1, (parts, num_heads, -1))
    # With unbind, the gradients of the parts are put together with one copy, in the order of x.
    return tuple(each.transpose(1, 2) for each in joint.unbind(2))


def join_heads(out: Tensor) -> Tensor:
    """(B, heads, L, head_dims) -> (B, L, heads * head_dims)."""
    out = out.transpose(1, 2)
    if is_exporting():
        # Made contiguous, because an exporter later replaces attention by operators whose output
        # has another memory layout.
        out = out.clone(memory_format=torch.contiguous_format)
    return out.flatten(2)
